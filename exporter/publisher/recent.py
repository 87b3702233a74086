# SPDX-License-Identifier: Apache-2.0
"""What a share did over the last seconds: differences of its totals."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from operator import add
from statistics import fmean
from typing import NamedTuple

from exporter.derive.roofline import intensity, intensity_bounds
from exporter.derive.saturation import estimated
from exporter.model.reading import Utilization
from exporter.model.snapshot import RECENT_SECONDS, Bounds, Recent, Saturation, ShareTotals
from exporter.publisher.limiter_hysteresis import SteadyLimiter
from exporter.publisher.totals import merged

ESTIMATE = "estimate"
"""The source of a saturation that follows from the utilization."""
SAME_SECONDS = 1e-6
STEADY_POWER_RATIO = 0.1
STEADY_UTILIZATION_RATIO = 0.05
"""In a steady window no interval is further from its mean. Energy and utilization of an interval
are not of quite the same time, hence no less."""
LEAST_STEADY_INTERVALS = 5


class Settled(NamedTuple):
    """Integrals of what intervals settle of the utilization's upper bound, all in seconds."""

    seconds: float = 0.0
    """How long they are."""
    compute: float = 0.0
    memory: float = 0.0
    """An interval without it counts as busy all along."""
    compute_open: float = 0.0
    """What the last interval left open."""
    memory_open: float = 0.0

    def after(self, utilization: Utilization | None, seconds: float) -> Settled:
        """Return the integrals after one more interval, which adds nothing if it is not known."""
        if utilization is None or utilization.settled_ratio is None:
            return self
        memory = utilization.memory_settled_ratio
        return Settled(
            self.seconds + seconds,
            self.compute + utilization.settled_ratio * seconds,
            self.memory + (1.0 if memory is None else memory) * seconds,
            (utilization.open_ratio or 0.0) * seconds,
            (utilization.memory_open_ratio or 0.0) * seconds,
        )

    def upper_since(self, before: Settled) -> Utilization | None:
        """Return the utilization since `before` as its upper bounds; None if nothing is settled.

        They are narrower than the mean of those of the intervals: what one leaves open is covered
        by the next, and only what the last one leaves open remains.
        """
        seconds = self.seconds - before.seconds
        if not seconds:
            return None
        upper = (self.compute - before.compute + self.compute_open) / seconds
        memory = (self.memory - before.memory + self.memory_open) / seconds
        return Utilization(upper, upper, seconds, None, memory)


class _Bounded(NamedTuple):
    """Integrals of what is only bounded, and the time in seconds over which they ran."""

    seconds: float = 0.0
    lower: float = 0.0
    upper: float = 0.0

    def after(self, bounds: Bounds | None, seconds: float) -> _Bounded:
        """Return the integrals after one more interval, which adds nothing if it is not known."""
        if bounds is None:
            return self
        return _Bounded(
            self.seconds + seconds,
            self.lower + bounds.lower * seconds,
            self.upper + bounds.upper * seconds,
        )

    def mean_since(self, before: _Bounded) -> Bounds | None:
        """Return the mean of each bound over the time of which it is known; None for no time."""
        seconds = self.seconds - before.seconds
        if not seconds:
            return None
        return Bounds((self.lower - before.lower) / seconds, (self.upper - before.upper) / seconds)


class _Mark(NamedTuple):
    """The totals at a reading."""

    monotonic: float
    totals: ShareTotals
    saturation: _Bounded = _Bounded()
    settled: Settled = Settled()
    traffic: _Bounded = _Bounded()
    """Of device memory, in bytes."""
    unread: float = 0.0
    """The observed time in which some of the work was not counted, in seconds."""
    units: Mapping[str, float] = {}
    """Integral of the saturation, by the unit that gave it."""
    watts: float | None = None
    """Mean power of the board in the interval that ends here; None where that is not known."""


def reach_seconds(interval_seconds: float) -> float:
    """Return the least length of the window that ends with an interval of this length.

    Half an interval less than it is long, so that jitter does not move its length.
    """
    return RECENT_SECONDS - min(interval_seconds, 1.0) / 2


class RecentWindow:
    """The totals of one share over the last readings; their differences give `recent`."""

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()
        self._limiter = SteadyLimiter()

    def add(
        self,
        monotonic: float,
        interval_seconds: float,
        totals: ShareTotals,
        saturation: Saturation | None,
        utilization: Utilization | None = None,
        traffic: Bounds | None = None,
        energy_joules: float | None = None,
    ) -> None:
        """Take the totals at a reading; a second call for the same reading does nothing.

        `utilization` is what bounds the saturation where that is estimated; `traffic` bounds the
        bytes/s of device memory where they are not measured; `energy_joules` is the board's over
        the interval.
        ``interval_seconds = 0`` begins anew: there is nothing to compare with before it.
        """
        marks = self._marks
        last = marks[-1] if marks else None
        if last is not None and monotonic <= last.monotonic:
            return
        if last is None or not interval_seconds:
            self._limiter = SteadyLimiter()
            marks.clear()
            marks.append(_Mark(monotonic, totals))
            return
        settled = last.settled
        if saturation is not None and saturation.source == ESTIMATE:
            settled = settled.after(utilization, interval_seconds)
        seen = _observed_between(last.totals, totals)
        units = last.units
        if saturation is not None and saturation.unit is not None:
            gave = _grown(totals.saturation_seconds, last.totals.saturation_seconds)
            units = merged(units, {saturation.unit: gave or 0.0}, add)
        marks.append(
            _Mark(
                monotonic,
                totals,
                last.saturation.after(
                    None if saturation is None else saturation.bounds, interval_seconds
                ),
                settled,
                last.traffic.after(traffic, seen),
                last.unread + seen * _leaves_out_work(saturation),
                units,
                None if energy_joules is None else energy_joules / interval_seconds,
            )
        )
        reach = reach_seconds(interval_seconds)
        while len(marks) > 2 and monotonic - marks[1].monotonic >= reach:
            marks.popleft()
        limited = totals.limited_seconds
        self._limiter.add(interval_seconds, _grown_each(limited, last.totals.limited_seconds))
        self._limiter.judge(_grown_each(limited, marks[0].totals.limited_seconds))

    def _saturation_bounds(self) -> Bounds | None:
        """Return the bounds of the saturation; None where it was not bounded at all."""
        then, now = self._marks[0], self._marks[-1]
        bounds = now.saturation.mean_since(then.saturation)
        if bounds is None:
            return None
        settled = _settled_upper(then, now, now.saturation.seconds - then.saturation.seconds)
        return Bounds(bounds.lower, min(bounds.upper, settled))

    def _flops_bounds(self, seconds: float | None) -> Bounds | None:
        """Return the bounds of the FLOP/s."""
        then, now = self._marks[0], self._marks[-1]
        lower = _over(_grown(now.totals.flops_lower, then.totals.flops_lower), seconds)
        upper = _over(_grown(now.totals.flops_upper, then.totals.flops_upper), seconds)
        return None if lower is None or upper is None else Bounds(lower, max(lower, upper))

    @property
    def is_steady(self) -> bool:
        """Whether in each interval of a whole window the board drew about the mean power, and was
        about as busy as in the mean."""
        marks = self._marks
        if len(marks) <= LEAST_STEADY_INTERVALS:
            return False
        length = marks[-1].monotonic - marks[0].monotonic
        used, drawn = [], []
        for then, now in pairwise(marks):
            busy = _grown(now.totals.busy_seconds, then.totals.busy_seconds)
            observed = _grown_each(now.totals.observed_seconds, then.totals.observed_seconds)
            ratio = _over(busy, observed.get("utilization"))
            if ratio is None or now.watts is None:
                return False
            used.append(ratio)
            drawn.append(now.watts)
        return (
            length >= reach_seconds(marks[-1].monotonic - marks[-2].monotonic)
            and _is_near_mean(used, STEADY_UTILIZATION_RATIO)
            and _is_near_mean(drawn, STEADY_POWER_RATIO * fmean(drawn))
        )

    def recent(self) -> Recent | None:
        """Return the means over the window; None until there are two readings."""
        if len(self._marks) < 2:
            return None
        then, now = self._marks[0], self._marks[-1]
        before, after = then.totals, now.totals
        observed = _grown_each(after.observed_seconds, before.observed_seconds)
        measured = observed.get("activity", 0.0)
        polled = observed.get("utilization", 0.0)
        ran = _grown_each(after.ran_seconds, before.ran_seconds)
        began = "activity" not in before.observed_seconds
        limited = _grown_each(after.limited_seconds, before.limited_seconds)
        judged = sum(limited.values())
        parts = _grown_each(after.time_seconds, before.time_seconds)
        parted = sum(parts.values())
        flops = {}
        if before.flops or began:  # a new precision has done nothing before
            flops = _over_each(_grown_each(after.flops, before.flops), measured)
        dram = _mean(after.dram_bytes, before.dram_bytes, measured, began=began)
        used = _over(_grown(after.busy_seconds, before.busy_seconds), polled)
        active = _mean_each(_active(after), _active(before), measured, began=began)
        roofs = _mean_each(after.roof_seconds, before.roof_seconds, measured, began=began)
        saturated = _grown(after.saturation_seconds, before.saturation_seconds)
        units = _grown_each(now.units, then.units)
        engine = active.get("engine")
        work = self._flops_bounds(ran.get("flops_upper"))
        traffic = now.traffic.mean_since(then.traffic) if dram is None else None
        counted = now.unread == then.unread
        point = intensity(sum(flops.values()), dram) if flops and counted else None
        return Recent(
            seconds=ran.get("limited_seconds") or polled,
            busy_ratio=used if engine is None else engine,
            utilization_ratio=used,
            saturation_ratio=_over(saturated, parted),
            saturation_bounds=self._saturation_bounds(),
            saturation_unit=max(units, key=units.__getitem__, default=None) if saturated else None,
            active_ratio=active,
            time_parts=_over_each(parts, parted),
            time_bounds={} if parted else _bounds_between(before, after, ran),
            limited_ratio=_over_each(limited, judged),
            limiter=self._limiter.limiter,
            roof_ratio=roofs,
            flops_per_second=flops,
            flops_bounds_per_second=work,
            dram_bytes_per_second=dram,
            dram_bounds_bytes_per_second=traffic,
            intensity_flops_per_byte=point,
            intensity_bounds_flops_per_byte=(
                intensity_bounds(work, dram, traffic) if point is None else None
            ),
            idle_ratio=_over(
                _grown(after.idle_seconds, before.idle_seconds), ran.get("idle_seconds")
            ),
            held_idle_ratio=_over(
                _grown(after.held_idle_seconds, before.held_idle_seconds),
                ran.get("held_idle_seconds"),
            ),
        )


def _is_near_mean(values: list[float], margin: float) -> bool:
    mean = fmean(values)
    return all(abs(value - mean) <= margin for value in values)


def _grown(after: float | None, before: float | None) -> float | None:
    return None if after is None else after - (before or 0.0)


def _grown_each(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {label: total - before.get(label, 0.0) for label, total in after.items()}


def _over(amount: float | None, seconds: float | None) -> float | None:
    return None if amount is None or not seconds else amount / seconds


def _mean(
    after: float | None, before: float | None, seconds: float, *, began: bool
) -> float | None:
    """Return the mean of what is read; None if it was left out, unless its reading `began`."""
    return None if before is None and not began else _over(_grown(after, before), seconds)


def _mean_each(
    after: Mapping[str, float], before: Mapping[str, float], seconds: float, *, began: bool
) -> dict[str, float]:
    known = {label: total for label, total in after.items() if began or label in before}
    return _over_each(_grown_each(known, before), seconds)


def _over_each(amounts: Mapping[str, float], seconds: float) -> dict[str, float]:
    return {label: amount / seconds for label, amount in amounts.items()} if seconds else {}


def _leaves_out_work(saturation: Saturation | None) -> bool:
    """Return whether a unit that does FLOPs, or DRAM, was not read."""
    unread = () if saturation is None else saturation.unmeasured
    return any(unit not in ("sm", "int") for unit in unread)


def _observed_between(before: ShareTotals, after: ShareTotals) -> float:
    """Return the length of the last interval; 0 if it has no limiter."""
    return _grown_each(after.ran_seconds, before.ran_seconds).get("limited_seconds", 0.0)


def _bounds_between(
    before: ShareTotals, after: ShareTotals, ran: Mapping[str, float]
) -> dict[str, Bounds]:
    """Return the bounds of each time part over the time of which they are known."""
    seconds = ran.get("time_upper_seconds", 0.0)
    lower = _over_each(_grown_each(after.time_lower_seconds, before.time_lower_seconds), seconds)
    upper = _over_each(_grown_each(after.time_upper_seconds, before.time_upper_seconds), seconds)
    return {part: Bounds(lower[part], upper[part]) for part in lower}


def _active(totals: ShareTotals) -> dict[str, float]:
    """Return for how long each counter was active."""
    whole = {
        "engine": totals.engine_active_seconds,
        "sm": totals.sm_active_seconds,
        "dram": totals.dram_active_seconds,
    }
    known = {name: seconds for name, seconds in whole.items() if seconds is not None}
    return {**known, **totals.pipe_active_seconds}


def _settled_upper(then: _Mark, now: _Mark, bounded: float) -> float:
    """Return the upper bound of the saturation from what the intervals settle; 1 if not known."""
    upper = now.settled.upper_since(then.settled)
    if upper is None or abs(upper.seconds - bounded) > SAME_SECONDS:
        return 1.0
    return estimated(upper).bounds.upper
