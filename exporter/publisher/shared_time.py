# SPDX-License-Identifier: Apache-2.0
"""One observed time for all hardware counters of a share, by which queries divide.

A unit that is missing for up to three readings pauses all counters. One that is missing for longer,
or often, is excluded, and included again after a minute without a gap, so that a scrape sees it
absent in between.
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
"""An excluded unit is included again after this long without a gap."""
FORGOTTEN_BLANKS = 1 / 6
"""Decay of the gap count per reading: a unit missing in over a seventh of readings is excluded."""
ROOF = "roof_seconds"
"""Its bases also depend on the work, so an unknown one is excluded at once."""
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
"""The fields of `ShareTotals` that share the observed time "activity"."""
WHOLE = "flops"
"""The field whose labels depend on the work, not on the units that are read."""
WORK_UNITS = ("fp64", "fp32", "fp16", "imma", "dmma", "dfma")
"""Fields of `Activity` that the FLOPs are computed from, besides the tensor pipe."""

Key = tuple[str, str]
"""A field and a label; the label is empty for WHOLE and for fields without labels."""


def _keys(field: str, value: Any) -> set[Key]:
    if field == WHOLE or not isinstance(value, dict):
        return {(field, "")} if value != {} else set()
    return {(field, label) for label in value}


class SharedTime:
    """The counters of one share that are included in its observed time."""

    def __init__(self) -> None:
        self._members: set[Key] = set()
        self._source: str | None = None
        self._blanks: dict[Key, float] = {}
        """By member: how often it was missing; each later reading reduces the count."""
        self._away: dict[Key, float] = {}
        """By excluded unit: for how many seconds it has been read again."""
        self._work_units: dict[str, set[str]] = {}
        """By source: the units of FLOPs that it has read so far."""

    def take(self, values: Mapping[str, Any], source: str, seconds: float) -> bool:
        """Take the increments of a reading by field; return whether the reading counts."""
        given = {key for name in FIELDS if name in values for key in _keys(name, values[name])}
        usual = given == self._members and source == self._source
        if usual and not self._away and not self._blanks:
            return True
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
        """Return the part of a field's value that is included; None if none is."""
        members = self._members
        if not self._away or field not in FIELDS or value is None:
            return value  # a counter that was ever read is included, unless it is absent now
        if field == WHOLE or not isinstance(value, dict):
            return value if (field, "") in members else None
        return {label: each for label, each in value.items() if (field, label) in members} or None

    def without_partial_flops(self, roofline: Roofline, activity: Activity) -> Roofline:
        """Return the roofline, without FLOPs if this reading lacks a unit that the source had.

        When a source reads a new unit, the total of FLOPs is excluded for a minute.
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
        clock = {basis: each for basis, each in roofline.roof_ratio.items() if basis == "clock"}
        return replace(
            roofline, flops_per_second={}, intensity_flops_per_byte=None, roof_ratio=clock
        )
