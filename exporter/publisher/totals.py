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
from exporter.derive.units import cut_activity
from exporter.model.reading import Activity, Utilization
from exporter.model.snapshot import LIMITERS, TIME_PARTS, Bounds, ShareTotals
from exporter.publisher.shared_stall import FIELDS, Together
from exporter.publisher.sums import merged

CUT_TOLERANCE = 0.01
"""A counter may read a little above 1 from rounding; beyond that the value is wrong."""

DERIVED = (
    "limited_seconds",
    "idle_seconds",
    "held_idle_seconds",
    "time_upper_seconds",
    "flops_upper",
)
"""The fields of `ShareTotals` that follow from readings of the whole interval, and that have no
published time of their own."""

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

    def times(self, rate: float | None) -> float | None:
        """Return what a rate, or a ratio of time, adds up to."""
        return None if rate is None else rate * self.seconds

    def times_each(self, rates: Mapping[str, float]) -> Mapping[str, float]:
        """Return what each of these rates adds up to."""
        return {label: rate * self.seconds for label, rate in rates.items()}


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


def _engine(interval: Interval) -> float | None:
    return None if interval.activity is None else interval.times(interval.activity.engine)


def _sm(interval: Interval) -> float | None:
    return None if interval.activity is None else interval.times(interval.activity.sm)


def _dram(interval: Interval) -> float | None:
    return None if interval.activity is None else interval.times(interval.activity.dram)


def _pipes(interval: Interval) -> Mapping[str, float] | None:
    activity = interval.activity
    return None if activity is None else interval.times_each(activity.pipe_ratios)


def _tensor_ops(interval: Interval) -> Mapping[str, float] | None:
    activity = interval.activity
    return None if activity is None else interval.times_each(activity.tensor_op_ratios)


def _saturation(interval: Interval) -> float | None:
    """Return nothing where the time has no parts: their sum is its observed time."""
    saturation, parts = interval.derived.saturation, interval.derived.time_parts
    return None if saturation is None or parts is None else interval.times(saturation.ratio)


def _parts(interval: Interval) -> Mapping[str, float] | None:
    parts = interval.derived.time_parts
    if parts is None:
        return None
    return interval.times_each({name: getattr(parts, name) for name in TIME_PARTS})


def _parts_lower(interval: Interval) -> Mapping[str, float] | None:
    bounds = interval.derived.time_integral_bounds
    return interval.times_each({part: each.lower for part, each in bounds.items()}) or None


def _parts_upper(interval: Interval) -> Mapping[str, float] | None:
    bounds = interval.derived.time_integral_bounds
    return interval.times_each({part: each.upper for part, each in bounds.items()}) or None


def _flops(interval: Interval) -> Mapping[str, float] | None:
    roofline = interval.derived.roofline
    return None if roofline is None else interval.times_each(roofline.flops_per_second)


def _flops_lower(interval: Interval) -> float | None:
    bounds = interval.derived.flops_integral_bounds
    return None if bounds is None else bounds.lower * interval.seconds


def _flops_upper(interval: Interval) -> float | None:
    bounds = interval.derived.flops_integral_bounds
    return None if bounds is None else bounds.upper * interval.seconds


def _dram_bytes(interval: Interval) -> float | None:
    roofline = interval.derived.roofline
    return None if roofline is None else interval.times(roofline.dram_bytes_per_second)


def _roof(interval: Interval) -> Mapping[str, float] | None:
    roofline = interval.derived.roofline
    return None if roofline is None else interval.times_each(roofline.roof_ratio)


def _limited(interval: Interval) -> Mapping[str, float] | None:
    """Return the seconds of each limiter: all are there from the first interval on, most at 0."""
    derived = interval.derived
    if derived.limiter is None:
        return None
    limited = dict(_NO_LIMITS)
    limited["input"] = derived.waited * interval.seconds
    limited[derived.limiter_besides or derived.limiter] += (1.0 - derived.waited) * interval.seconds
    return limited


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


def _held_idle_energy(interval: Interval) -> float | None:
    held, joules = interval.derived.held, _idle_energy(interval)
    return None if held is None or joules is None else joules if held else 0.0


SHARE_TOTALS: Mapping[str, Callable[[Interval], float | Mapping[str, float] | None]] = {
    "busy_seconds": _busy,
    "observed_seconds": _observed,
    "engine_active_seconds": _engine,
    "sm_active_seconds": _sm,
    "dram_active_seconds": _dram,
    "pipe_active_seconds": _pipes,
    "tensor_op_active_seconds": _tensor_ops,
    "saturation_seconds": _saturation,
    "time_seconds": _parts,
    "time_lower_seconds": _parts_lower,
    "time_upper_seconds": _parts_upper,
    "flops": _flops,
    "flops_lower": _flops_lower,
    "flops_upper": _flops_upper,
    "dram_bytes": _dram_bytes,
    "roof_seconds": _roof,
    "limited_seconds": _limited,
    "idle_seconds": _idle,
    "held_idle_seconds": _held_idle,
    "idle_energy_joules": _idle_energy,
    "held_idle_energy_joules": _held_idle_energy,
}
"""By the field of `ShareTotals`: what an interval adds to it; None adds nothing. `ShareIntegral`
itself keeps the fields that are no sums over measured intervals: when the share was last busy, for
how long it has been idle, the inferred stall, which is added up window by window, and the time in
which it was given away but not held, which needs no measurement."""


class ShareIntegral:
    """The totals of one share since it was first seen."""

    def __init__(self, started_unix_seconds: float) -> None:
        self.cuts: Counter[str] = Counter()
        """By source: activities that had to be cut to 1 by more than rounding explains."""
        self.together = Together()
        self._sums: dict[str, Any] = {}
        """By the field of `ShareTotals`."""
        self._last_busy = started_unix_seconds
        self._idle_for: float | None = None
        self._unopened_for: float | None = None

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
        more: dict[str, Any] = {
            field: value
            for field, added in SHARE_TOTALS.items()
            if (value := added(interval)) is not None
        }
        if activity is not None and not self.together.take(more, activity.source, activity.seconds):
            more["observed_seconds"].pop("activity")
            for field in FIELDS:
                more.pop(field, None)
        if "idle_seconds" in sums and "idle_seconds" not in more:
            # The sum of all limiters is the observed time of the idle time.
            more.pop("limited_seconds", None)
        for field, value in more.items():
            if (value := self.together.members(field, value)) is not None:
                sums[field] = merged(sums.get(field), value, add)
        ran = {field: interval.seconds for field in DERIVED if field in more}
        sums["ran_seconds"] = merged(sums.get("ran_seconds"), ran, add)
        if derived.idle:
            self._idle_for = (self._idle_for or 0.0) + interval.seconds
        elif derived.idle is not None:
            self._idle_for = 0.0
            self._last_busy = unix_seconds

    def add_allocated(
        self, seconds: float, *, allocated: bool | None, held: bool | None, anew: bool = False
    ) -> None:
        """Add `seconds` in which a scheduler had given the share away or not, and it was held or
        not; where either is not known, nothing. `anew` if it was given to somebody else."""
        if allocated is None or held is None:
            self._unopened_for = None
            return
        unopened = seconds if allocated and not held else 0.0
        field = "allocated_unopened_seconds"
        self._sums[field] = self._sums.get(field, 0.0) + unopened
        begins = anew or not unopened
        self._unopened_for = 0.0 if begins else (self._unopened_for or 0.0) + unopened

    def add_stall(self, method: str, seconds: Bounds) -> None:
        """Add what is certain of the stall since the last report of a rank, once and whole."""
        for field, more in (
            ("data_stall_lower_seconds", seconds.lower),
            ("data_stall_upper_seconds", seconds.upper),
        ):
            self._sums[field] = merged(self._sums.get(field), {method: more}, add)

    def _cut(self, activity: Activity) -> Activity:
        """Return the activity with no ratio above 1, and count those that were wrong."""
        within = cut_activity(activity)
        if within is not activity:
            ratios = (
                *(activity.engine, activity.sm, activity.dram),
                *activity.pipe_ratios.values(),
                *activity.tensor_op_ratios.values(),
            )
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
        known = {
            field: value
            for field, each in self._sums.items()
            if (value := self.together.members(field, each)) is not None
        }
        return ShareTotals(
            **known,
            last_busy_timestamp_seconds=self._last_busy if "idle_seconds" in self._sums else None,
            idle_for_seconds=self._idle_for,
            unopened_for_seconds=self._unopened_for,
        )
