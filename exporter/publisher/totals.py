# SPDX-License-Identifier: Apache-2.0
"""The running totals of one share: counters = ratios x time, but over a gap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from operator import add, attrgetter
from typing import Any, NamedTuple

from exporter.derive import Derived
from exporter.derive.units import cut_activity
from exporter.model.reading import Activity, Utilization
from exporter.model.snapshot import LIMITERS, TIME_PARTS, Bounds, ShareTotals
from exporter.publisher.shared_time import FIELDS, SharedTime

CUT_TOLERANCE = 0.01
"""Above 1 by up to this much is a rounding error, beyond it the value is wrong."""

DERIVED = (
    "limited_seconds",
    "idle_seconds",
    "held_idle_seconds",
    "time_upper_seconds",
    "flops_upper",
)
"""The fields of `ShareTotals` without a published observed time; `ran_seconds` has theirs."""

Rate = float | Mapping[str, float] | None
"""A number, or numbers by label; None if not known."""


class Interval(NamedTuple):
    """One interval of a share: the input of every total."""

    utilization: Utilization | None
    activity: Activity | None
    derived: Derived
    energy_joules: float | None
    """Of the board; None if not known, and for a MIG instance."""
    seconds: float

    def times(self, rate: Rate) -> Rate:
        """Multiply a rate or ratio, or each by label, by the length of the interval."""
        if rate is None:
            return None
        seconds = self.seconds
        if isinstance(rate, (float, int)):
            return rate * seconds
        return {label: each * seconds for label, each in rate.items()}


Added = Callable[[Interval], Rate]


def _busy(interval: Interval) -> Rate:
    utilization = interval.utilization
    return None if utilization is None else utilization.ratio * utilization.seconds


def _observed(interval: Interval) -> Rate:
    readings = {"utilization": interval.utilization, "activity": interval.activity}
    return {name: each.seconds for name, each in readings.items() if each is not None}


def _rate(path: str) -> Added:
    """Add what is at a path below the interval x its length; nothing where a part of it is None."""
    names = path.split(".")

    def added(interval: Interval) -> Rate:
        value: Any = interval
        for name in names:
            if value is None:
                return None
            value = getattr(value, name)
        return interval.times(value)

    return added


def _saturation(interval: Interval) -> Rate:
    """Return None without time parts: their sum is the observed time of the saturation."""
    saturation, parts = interval.derived.saturation, interval.derived.time_parts
    return None if saturation is None or parts is None else interval.times(saturation.ratio)


def _parts(interval: Interval) -> Rate:
    parts = interval.derived.time_parts
    if parts is None:
        return None
    return interval.times({name: getattr(parts, name) for name in TIME_PARTS})


def _part_bounds(end: Callable[[Bounds], float]) -> Added:
    def added(interval: Interval) -> Rate:
        bounds = interval.derived.time_integral_bounds
        return interval.times({part: end(each) for part, each in bounds.items()}) or None

    return added


def _limited(interval: Interval) -> Rate:
    """Return the seconds of every limiter, most of them 0."""
    derived = interval.derived
    if derived.limiter is None:
        return None
    limited = dict.fromkeys(LIMITERS, 0.0)
    limited["input"] = derived.waited * interval.seconds
    limited[derived.limiter_besides or derived.limiter] += (1.0 - derived.waited) * interval.seconds
    return limited


def _while_idle(amount: Callable[[Interval], float | None], *, held: bool) -> Added:
    """Add an amount in idle intervals, or in held idle ones, and 0 in others."""

    def added(interval: Interval) -> Rate:
        idle, whole = interval.derived.idle, amount(interval)
        if held and idle is not None:
            idle = None if interval.derived.held is None else idle and interval.derived.held
        return None if idle is None or whole is None else whole if idle else 0.0

    return added


_seconds, _energy = attrgetter("seconds"), attrgetter("energy_joules")

SHARE_TOTALS: Mapping[str, Added] = {
    "busy_seconds": _busy,
    "observed_seconds": _observed,
    "engine_active_seconds": _rate("activity.engine"),
    "sm_active_seconds": _rate("activity.sm"),
    "dram_active_seconds": _rate("activity.dram"),
    "pipe_active_seconds": _rate("activity.pipe_ratios"),
    "tensor_op_active_seconds": _rate("activity.tensor_op_ratios"),
    "saturation_seconds": _saturation,
    "time_seconds": _parts,
    "time_lower_seconds": _part_bounds(attrgetter("lower")),
    "time_upper_seconds": _part_bounds(attrgetter("upper")),
    "flops": _rate("derived.roofline.flops_per_second"),
    "flops_lower": _rate("derived.flops_integral_bounds.lower"),
    "flops_upper": _rate("derived.flops_integral_bounds.upper"),
    "dram_bytes": _rate("derived.roofline.dram_bytes_per_second"),
    "roof_seconds": _rate("derived.roofline.roof_ratio"),
    "limited_seconds": _limited,
    "idle_seconds": _while_idle(_seconds, held=False),
    "held_idle_seconds": _while_idle(_seconds, held=True),
    "idle_energy_joules": _while_idle(_energy, held=False),
    "held_idle_energy_joules": _while_idle(_energy, held=True),
}
"""By the field of `ShareTotals`: its increment. `ShareIntegral` keeps those that are no sums over
measured intervals."""


class ShareIntegral:
    """The totals of one share since it was first seen."""

    def __init__(self, started_unix_seconds: float, cuts: Counter[str] | None = None) -> None:
        self.cuts = Counter() if cuts is None else cuts
        """By source: activities above 1 by more than a rounding error."""
        self.shared_time = SharedTime()
        self._sums: dict[str, Any] = {}
        self._since = self._last_busy = started_unix_seconds
        self._idle_for: float | None = None
        self._seen_busy: float | None = None
        self._unopened_for: float | None = None

    def add(
        self,
        utilization: Utilization | None,
        activity: Activity | None,
        derived: Derived,
        energy_joules: float | None,
        unix_seconds: float,
    ) -> None:
        """Add an interval that ends at `unix_seconds`, as long as its activity or utilization."""
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
        if activity is not None and not self.shared_time.take(
            more, activity.source, activity.seconds
        ):
            more["observed_seconds"].pop("activity")
            for field in FIELDS:
                more.pop(field, None)
        if "idle_seconds" in sums and "idle_seconds" not in more:
            # The sum over limiters is the observed time of the idle time.
            more.pop("limited_seconds", None)
        for field, value in more.items():
            if (value := self.shared_time.members(field, value)) is not None:
                sums[field] = merged(sums.get(field), value, add)
        ran = {field: interval.seconds for field in DERIVED if field in more}
        sums["ran_seconds"] = merged(sums.get("ran_seconds"), ran, add)
        if derived.idle:
            self._idle_for = (self._idle_for or 0.0) + interval.seconds
        elif derived.idle is not None:
            self._idle_for = 0.0
            self._last_busy = self._seen_busy = unix_seconds

    def add_allocated(
        self, seconds: float, *, allocated: bool | None, held: bool | None, anew: bool = False
    ) -> None:
        """Add allocated and unopened time; `anew` if the share has another workload."""
        if allocated is None or held is None:
            self._unopened_for = None
            return
        unopened = seconds if allocated and not held else 0.0
        field = "allocated_unopened_seconds"
        self._sums[field] = self._sums.get(field, 0.0) + unopened
        begins = anew or not unopened
        self._unopened_for = 0.0 if begins else (self._unopened_for or 0.0) + unopened

    def add_stall(self, method: str, seconds: Bounds) -> None:
        """Add the bounds of the stall in a rank's window."""
        for end in ("lower", "upper"):
            field, more = f"data_stall_{end}_seconds", {method: getattr(seconds, end)}
            self._sums[field] = merged(self._sums.get(field), more, add)

    def _cut(self, activity: Activity) -> Activity:
        """Return the activity with ratios cut to 1; count the wrong ones."""
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
        """End the idle time: the share was not observed up to `unix_seconds`."""
        self._idle_for = None
        self._last_busy = unix_seconds

    def totals(self) -> ShareTotals:
        """Return the totals so far."""
        known = {
            field: value
            for field, each in self._sums.items()
            if (value := self.shared_time.members(field, each)) is not None
        }
        return ShareTotals(
            since_timestamp_seconds=self._since,
            **known,
            last_busy_timestamp_seconds=self._last_busy if "idle_seconds" in self._sums else None,
            idle_for_seconds=self._idle_for,
            seen_busy_timestamp_seconds=self._seen_busy,
            unopened_for_seconds=self._unopened_for,
        )


def merged(one: Any, other: Any, of: Callable[[float, float], float]) -> Any:
    """Apply `of` to two numbers or, label by label, to two dicts; return a new value.

    None is the neutral element, and a missing label counts as 0.
    """
    if one is None or other is None:
        return other if one is None else one
    if not isinstance(other, dict):
        return of(one, other)
    both = dict(one)
    for label, each in other.items():
        both[label] = of(both.get(label, 0.0), each)
    return both
