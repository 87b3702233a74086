# SPDX-License-Identifier: Apache-2.0
"""Which readings of the hardware counters are added up: those that were taken together.

One observed time serves the counters of all units, so it runs only while all of them are read. A
unit that is blank for up to three readings stops them all; one that stays away is left out, and the
others go on. It comes back after a minute without a blank: a scrape then has seen that it was gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from exporter.clock import GAP_INTERVALS
from exporter.derive.units import reads_fma, tensor_activity
from exporter.model.reading import Activity
from exporter.model.snapshot import Roofline

SURE_SECONDS = 60.0
"""A unit that was left out counts again once it was read for so long without a blank."""
ROOF = "roof_seconds"
"""Whether its bases are known follows from the work as well: one that is not leaves at once."""
FIELDS = (
    "engine_active_seconds",
    "sm_active_seconds",
    "dram_active_seconds",
    "pipe_active_seconds",
    "tensor_op_active_seconds",
    "flops",
    "dram_bytes",
    ROOF,
)
"""The fields of `ShareTotals` that the observed time "activity" belongs to."""
WHOLE = "flops"
"""The field whose labels come and go with the work, not with what is read."""
WORK_UNITS = ("fp64", "fp32", "fp16", "imma", "dmma", "dfma")
"""Fields of `Activity`: units of FLOPs besides the tensor pipe, and what shows its precision."""

Key = tuple[str, str]
"""A field and a label; the label is empty where there is none, and of WHOLE."""


def _keys(field: str, value: Any) -> set[Key]:
    if field == WHOLE or not isinstance(value, dict):
        return {(field, "")} if value != {} else set()
    return {(field, label) for label in value}


class Together:
    """What is read together of one share."""

    def __init__(self) -> None:
        self._members: set[Key] = set()
        self._source: str | None = None
        self._lacked: set[Key] = set()
        """Members that were blank since all of them were last read, and in how many readings."""
        self._blanks = 0
        self._away: dict[Key, float] = {}
        """Those that were left out, and for how many seconds they were read since."""
        self._work_units: dict[str, set[str]] = {}
        """By source: the units of FLOPs that it has given."""

    def take(self, values: Mapping[str, Any], source: str, seconds: float) -> bool:
        """Take what a reading of `seconds` adds, by field; return whether it counts."""
        given = {key for name in FIELDS if name in values for key in _keys(name, values[name])}
        if source != self._source:
            self._leave(self._members - given)
            self._source = source
        for key in self._away:
            self._away[key] = self._away[key] + seconds if key in given else 0.0
        self._members |= {key for key in given if self._away.get(key, inf) > SURE_SECONDS}
        lacking = self._members - given
        if all(field == ROOF for field, _ in lacking):
            self._leave(lacking)
            lacking = set()
        self._lacked = self._lacked | lacking if lacking else set()
        self._blanks = self._blanks + 1 if lacking else 0
        if self._blanks > GAP_INTERVALS:
            self._leave(self._lacked)
            self._lacked, self._blanks = set(), 0
        return not self._blanks

    def _leave(self, keys: set[Key]) -> None:
        self._members -= keys
        self._away.update(dict.fromkeys(keys, 0.0))

    def members(self, field: str, value: Any) -> Any:
        """Return of a field what is read together; None for nothing."""
        members = self._members
        if field not in FIELDS or value is None:
            return value
        if field == WHOLE or not isinstance(value, dict):
            return value if (field, "") in members else None
        return {label: each for label, each in value.items() if (field, label) in members} or None

    def worked_out(self, roofline: Roofline, activity: Activity) -> Roofline:
        """Return what follows from a reading, without the FLOPs where it lacks one of the units
        whose FLOPs its source has given: the others are not all of them. Nor are those before a
        unit that is new, with which they are added up from a minute later on."""
        given = {name for name in WORK_UNITS if getattr(activity, name) is not None}
        if tensor_activity(activity) is not None:
            given.add("tensor")
        if reads_fma(activity):
            given |= {"fma", "fp32", "fp16"}
        known = self._work_units.setdefault(activity.source, set())
        if known and given > known:
            self._leave({(WHOLE, "")} & self._members)
        known |= given
        if given == known:
            return roofline
        return replace(
            roofline,
            flops_per_second={},
            intensity_flops_per_byte=None,
            roof_ratio={
                basis: ratio for basis, ratio in roofline.roof_ratio.items() if basis == "clock"
            },
        )
