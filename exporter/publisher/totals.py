# SPDX-License-Identifier: Apache-2.0
"""Ratios x time = counters: the running totals of one share.

Totals live as long as the process and outlive workers, sessions and changes of source. The
publisher leaves out every interval that is longer than three polls: nothing is integrated over a
gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from operator import add
from typing import Any, NamedTuple

from exporter.derive import Derived
from exporter.derive.units import shown
from exporter.model.reading import Activity, Utilization
from exporter.model.snapshot import LIMITERS, TIME_PARTS, ShareTotals
from exporter.publisher.sums import merged

PIPES: Mapping[str, str] = {
    "tensor": "tensor",
    "fp64": "fp64",
    "fp32": "fp32",
    "fp16": "fp16",
    "int": "integer",
}
"""By the label's value: the field of `Activity`."""
TENSOR_OPS: Mapping[str, str] = {op: op for op in ("hmma", "imma", "dmma", "dfma")}
INTEGRATED = ("engine", "sm", "dram", *PIPES.values(), *TENSOR_OPS.values())
"""The fields of `Activity` that are integrated."""
CUT_TOLERANCE = 0.01
"""A counter may read a little above 1 from rounding; beyond that the value is wrong."""


_NO_LIMITS = dict.fromkeys(LIMITERS, 0.0)


class Interval(NamedTuple):
    """One interval of a share, as the totals take it."""

    utilization: Utilization | None
    activity: Activity | None
    """With no ratio above 1."""
    derived: Derived
    energy_joules: float | None
    """Of the board; None where it is not known, or is not the share's alone."""
    seconds: float

    def active(self, field: str) -> float | None:
        """Return how long a unit was active, by the field of `Activity` that holds its ratio."""
        ratio = None if self.activity is None else getattr(self.activity, field)
        return None if ratio is None else ratio * self.seconds

    def active_by(self, fields: Mapping[str, str]) -> Mapping[str, float]:
        """Return how long each unit was active whose ratio is known, by label."""
        activity = self.activity
        if activity is None:
            return {}
        return {
            label: ratio * self.seconds
            for label, field in fields.items()
            if (ratio := getattr(activity, field)) is not None
        }

    def times(self, rate: float | None) -> float | None:
        """Return what a rate adds up to."""
        return None if rate is None else rate * self.seconds


def _busy(interval: Interval) -> float | None:
    utilization = interval.utilization
    return None if utilization is None else utilization.ratio * utilization.seconds


def _observed(interval: Interval) -> Mapping[str, float]:
    seen = {}
    if interval.utilization is not None:
        seen["utilization"] = interval.utilization.seconds
    if interval.activity is not None:
        seen["activity"] = interval.activity.seconds
    return seen


def _saturation(interval: Interval) -> float | None:
    saturation = interval.derived.saturation
    return None if saturation is None else interval.times(saturation.ratio)


def _parts(interval: Interval) -> Mapping[str, float] | None:
    parts = interval.derived.time_parts
    if parts is None:
        return None
    return {name: getattr(parts, name) * interval.seconds for name in TIME_PARTS}


def _flops(interval: Interval) -> Mapping[str, float] | None:
    roofline = interval.derived.roofline
    if roofline is None:
        return None
    rates = roofline.flops_per_second
    return {precision: rate * interval.seconds for precision, rate in rates.items()}


def _flops_lower(interval: Interval) -> float | None:
    bounds = interval.derived.flops_integral_bounds
    return None if bounds is None else bounds.lower * interval.seconds


def _flops_upper(interval: Interval) -> float | None:
    bounds = interval.derived.flops_integral_bounds
    return None if bounds is None else bounds.upper * interval.seconds


def _dram_bytes(interval: Interval) -> float | None:
    roofline = interval.derived.roofline
    return None if roofline is None else interval.times(roofline.dram_bytes_per_second)


def _limited(interval: Interval) -> Mapping[str, float] | None:
    """Return the seconds of each limiter: all are there from the first interval on, most at 0."""
    limiter = interval.derived.limiter
    if limiter is None:
        return None
    return {**_NO_LIMITS, limiter: interval.seconds}


def _idle(interval: Interval) -> float | None:
    idle = interval.derived.idle
    return None if idle is None else interval.seconds if idle else 0.0


def _held_idle(interval: Interval) -> float | None:
    idle, held = interval.derived.idle, interval.derived.held
    if idle is None or held is None:
        return None
    return interval.seconds if idle and held else 0.0


def _idle_energy(interval: Interval) -> float | None:
    idle = interval.derived.idle
    if idle is None or interval.energy_joules is None:
        return None
    return interval.energy_joules if idle else 0.0


def _stall_lower(interval: Interval) -> Mapping[str, float]:
    stalls = interval.derived.data_stall
    return {method: bounds.lower * interval.seconds for method, bounds in stalls.items()}


def _stall_upper(interval: Interval) -> Mapping[str, float]:
    stalls = interval.derived.data_stall
    return {method: bounds.upper * interval.seconds for method, bounds in stalls.items()}


SHARE_TOTALS: Mapping[str, Callable[[Interval], float | Mapping[str, float] | None]] = {
    "busy_seconds": _busy,
    "observed_seconds": _observed,
    "engine_active_seconds": lambda interval: interval.active("engine"),
    "sm_active_seconds": lambda interval: interval.active("sm"),
    "dram_active_seconds": lambda interval: interval.active("dram"),
    "pipe_active_seconds": lambda interval: interval.active_by(PIPES),
    "tensor_op_active_seconds": lambda interval: interval.active_by(TENSOR_OPS),
    "saturation_seconds": _saturation,
    "time_seconds": _parts,
    "flops": _flops,
    "flops_lower": _flops_lower,
    "flops_upper": _flops_upper,
    "dram_bytes": _dram_bytes,
    "limited_seconds": _limited,
    "idle_seconds": _idle,
    "held_idle_seconds": _held_idle,
    "idle_energy_joules": _idle_energy,
    "data_stall_lower_seconds": _stall_lower,
    "data_stall_upper_seconds": _stall_upper,
}
"""By the field of `ShareTotals`: what an interval adds to it; None adds nothing. The two fields
that are no sums, when the share was last busy and for how long it has been idle, are kept by
`ShareIntegral` itself."""


class ShareIntegral:
    """The totals of one share since it was first seen."""

    def __init__(self, started_unix_seconds: float) -> None:
        self.cuts: Counter[str] = Counter()
        """By source: activities that had to be cut to 1 by more than rounding explains."""
        self._sums: dict[str, Any] = {}
        """By the field of `ShareTotals`."""
        self._last_busy = started_unix_seconds
        self._idle_for: float | None = None

    def add(
        self,
        utilization: Utilization | None,
        activity: Activity | None,
        derived: Derived,
        energy_joules: float | None,
        unix_seconds: float,
    ) -> None:
        """Add one interval that ends at `unix_seconds`.

        Without activity its length is that of the utilization; with neither nothing is added.
        """
        measured = activity or utilization
        if measured is None:
            return
        if activity is not None:
            activity = self._cut(activity)
        interval = Interval(utilization, activity, derived, energy_joules, measured.seconds)
        sums = self._sums
        for field, added in SHARE_TOTALS.items():
            more = added(interval)
            if more is not None:
                sums[field] = merged(sums.get(field), more, add)
        if derived.idle:
            self._idle_for = (self._idle_for or 0.0) + interval.seconds
        elif derived.idle is not None:
            self._idle_for = 0.0
            self._last_busy = unix_seconds

    def _cut(self, activity: Activity) -> Activity:
        within = shown(activity)
        if within is not activity:
            ratios = (getattr(activity, field) for field in INTEGRATED)
            wrong = sum(ratio is not None and ratio > 1.0 + CUT_TOLERANCE for ratio in ratios)
            if wrong:
                self.cuts[activity.source] += wrong
        return within

    def end_idle(self, unix_seconds: float) -> None:
        """End the idle time: it is not known whether the share was idle until `unix_seconds`."""
        self._idle_for = None
        self._last_busy = unix_seconds

    def totals(self) -> ShareTotals:
        """Return the totals so far."""
        return ShareTotals(
            **self._sums,
            last_busy_timestamp_seconds=self._last_busy if "idle_seconds" in self._sums else None,
            idle_for_seconds=self._idle_for,
        )
