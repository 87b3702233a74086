# SPDX-License-Identifier: Apache-2.0
"""The observed time that the hardware counters of one share have in common.

All units' counters are divided by one observed time, so it runs only while all of them are read. A
unit that is missing for up to three readings stops them all. One that is missing for longer, or
again and again, is left out, and the others go on; it comes back after a minute without a gap, so
that a scrape has seen that it was gone.
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
"""A unit that was left out comes back after this long without a gap."""
FORGOTTEN_BLANKS = 1 / 6
"""For each reading with the unit: a unit missing in more than every seventh reading is left out."""
ROOF = "roof_seconds"
"""Its bases depend on the work, too: an unknown one is left out at once."""
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
"""The field whose labels depend on the work, not on what is read."""
WORK_UNITS = ("fp64", "fp32", "fp16", "imma", "dmma", "dfma")
"""Fields of `Activity`: units of FLOPs besides the tensor pipe, and what shows its precision."""

Key = tuple[str, str]
"""A field and a label; the label is empty where there is none, and of WHOLE."""


def _keys(field: str, value: Any) -> set[Key]:
    if field == WHOLE or not isinstance(value, dict):
        return {(field, "")} if value != {} else set()
    return {(field, label) for label in value}


class SharedTime:
    """The counters of one share that are divided by one observed time."""

    def __init__(self) -> None:
        self._members: set[Key] = set()
        self._source: str | None = None
        self._blanks: dict[Key, float] = {}
        """Members that were missing, and how often; each later reading reduces the count."""
        self._away: dict[Key, float] = {}
        """Units that were left out, and for how many seconds they were read since."""
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
        blanks = {key: count - FORGOTTEN_BLANKS for key, count in self._blanks.items()}
        blanks |= {key: self._blanks.get(key, 0.0) + 1.0 for key in lacking}
        gone = {key for key in lacking if blanks[key] > GAP_INTERVALS}
        self._leave(gone)
        self._blanks = {key: n for key, n in blanks.items() if n > 0.0 and key not in gone}
        return lacking <= gone

    def _leave(self, keys: set[Key]) -> None:
        self._members -= keys
        self._away.update(dict.fromkeys(keys, 0.0))

    def members(self, field: str, value: Any) -> Any:
        """Return the part of a field's value that is added up; None for none of it."""
        members = self._members
        if field not in FIELDS or value is None:
            return value
        if field == WHOLE or not isinstance(value, dict):
            return value if (field, "") in members else None
        return {label: each for label, each in value.items() if (field, label) in members} or None

    def without_partial_flops(self, roofline: Roofline, activity: Activity) -> Roofline:
        """Return the roofline without FLOPs if they are not those of all units: if this reading
        lacks a unit that its source gave before. When a source gives a unit for the first time,
        FLOPs are left out of the totals for a minute: before and after are not of the same units.
        """
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
