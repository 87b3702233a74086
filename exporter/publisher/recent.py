# SPDX-License-Identifier: Apache-2.0
"""Means of a share over the last 10 s, as differences of its totals."""

from __future__ import annotations

import math
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
from exporter.publisher.totals import merged

ESTIMATE = "estimate"
"""The source of a saturation that is estimated from the utilization."""
SAME_SECONDS = 1e-6
STEADY_POWER_RATIO = 0.1
STEADY_UTILIZATION_RATIO = 0.05
"""How far an interval of a steady window may be from the mean."""
LEAST_STEADY_INTERVALS = 5
TAKEOVER_SECONDS = 2.5
"""A limiter that leads by this much within the window replaces the one shown."""
USUAL_SECONDS = 30.0
USUAL_LEAD_SECONDS = 3.0
"""Or over an exponential average of 30 s, in which bursts of up to 5 s do not lead by turns."""


class SteadyLimiter:
    """The limiter to show while several alternate: it changes only when another clearly leads."""

    def __init__(self) -> None:
        self.limiter: str | None = None
        self._usual: dict[str, float] = {}
        """Seconds by limiter, with exponential decay."""

    def add(self, interval_seconds: float, limited: Mapping[str, float]) -> None:
        """Add an interval: the seconds of each limiter in it."""
        kept = math.exp(-interval_seconds / USUAL_SECONDS)
        self._usual = {
            name: kept * self._usual.get(name, 0.0) + seconds for name, seconds in limited.items()
        }

    def judge(self, window: Mapping[str, float]) -> None:
        """Change the limiter if another clearly leads; `window` has the seconds by limiter."""
        if not any(window.values()):
            self.limiter = None
            return
        longest, usual = (max(each, key=each.__getitem__) for each in (window, self._usual))
        shown = self.limiter
        if shown is None or window[longest] - window.get(shown, 0.0) >= TAKEOVER_SECONDS:
            self.limiter = longest
            return
        lead = self._usual[usual] - self._usual.get(shown, 0.0)
        if window.get(usual) and lead >= USUAL_LEAD_SECONDS:
            self.limiter = usual


class Settled(NamedTuple):
    """Integrals of the settled part of the utilization's upper bound, in seconds."""

    seconds: float = 0.0
    compute: float = 0.0
    memory: float = 0.0
    """An interval without this reading counts as busy."""
    compute_open: float = 0.0
    """The open part of the last interval: the next reading may still change it."""
    memory_open: float = 0.0

    def after(self, utilization: Utilization | None, seconds: float) -> Settled:
        """Return the integrals with one more interval."""
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
        """Return the upper bounds of the utilization since `before`; None if nothing is settled.

        The next interval settles what one leaves open, so only the open part of the last counts.
        """
        seconds = self.seconds - before.seconds
        if not seconds:
            return None
        upper = (self.compute - before.compute + self.compute_open) / seconds
        memory = (self.memory - before.memory + self.memory_open) / seconds
        return Utilization(upper, upper, seconds, None, memory)


class _Mean(NamedTuple):
    """Integral of a rate, and the seconds over which it was known."""

    seconds: float = 0.0
    integral: float = 0.0

    def after(self, rate: float | None, seconds: float) -> _Mean:
        """Return the integral with one more interval."""
        if rate is None:
            return self
        return _Mean(self.seconds + seconds, self.integral + rate * seconds)

    def since(self, before: _Mean) -> float | None:
        """Return the mean since `before`; None if it was never known."""
        return _over(self.integral - before.integral, self.seconds - before.seconds)


class _Bounded(NamedTuple):
    lower: _Mean = _Mean()
    upper: _Mean = _Mean()

    def after(self, bounds: Bounds | None, seconds: float) -> _Bounded:
        """Return the integrals with one more interval."""
        lower, upper = (None, None) if bounds is None else (bounds.lower, bounds.upper)
        return _Bounded(self.lower.after(lower, seconds), self.upper.after(upper, seconds))

    def since(self, before: _Bounded) -> Bounds | None:
        """Return the mean of each bound while it was known; None if it never was."""
        lower, upper = self.lower.since(before.lower), self.upper.since(before.upper)
        return None if lower is None or upper is None else Bounds(lower, upper)


class _Mark(NamedTuple):
    monotonic: float
    totals: ShareTotals
    saturation: _Bounded = _Bounded()
    settled: Settled = Settled()
    traffic: _Bounded = _Bounded()
    unread: float = 0.0
    """Seconds in which a unit that does work was not read."""
    units: Mapping[str, float] = {}
    """Integral of the saturation, by the busiest unit."""
    watts: float | None = None
    dram_estimate: _Mean = _Mean()
    traffic_estimate: _Mean = _Mean()
    """0 where there is an estimate of the activity alone."""
    memory: _Mean = _Mean()
    """Of the driver's memory utilization."""


def reach_seconds(interval_seconds: float) -> float:
    """Return the length of the window: half an interval less than 10 s, for jitter."""
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
        traffic_estimate: float | None = None,
    ) -> None:
        """Add the totals at a reading; a second call for the same reading does nothing.

        `interval_seconds` 0 restarts the window. `traffic` are bytes/s of device memory, where
        these are only bounded, and `energy_joules` is of the board in the interval.
        `traffic_estimate` are the likely bytes/s, where these are not measured.
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
        ran = _grown_each(totals.ran_seconds, last.totals.ran_seconds)
        seen = ran.get("limited_seconds", 0.0)
        likely = None if saturation is None else saturation.estimates.get("dram")
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
                last.dram_estimate.after(likely, interval_seconds),
                last.traffic_estimate.after(
                    None if likely is None else traffic_estimate or 0.0, interval_seconds
                ),
                last.memory
                if utilization is None
                else last.memory.after(utilization.memory_ratio, utilization.seconds),
            )
        )
        reach = reach_seconds(interval_seconds)
        while len(marks) > 2 and monotonic - marks[1].monotonic >= reach:
            marks.popleft()
        limited = totals.limited_seconds
        self._limiter.add(interval_seconds, _grown_each(limited, last.totals.limited_seconds))
        self._limiter.judge(_grown_each(limited, marks[0].totals.limited_seconds))

    def _saturation_bounds(self) -> Bounds | None:
        then, now = self._marks[0], self._marks[-1]
        bounds = now.saturation.since(then.saturation)
        if bounds is None:
            return None
        seconds = now.saturation.lower.seconds - then.saturation.lower.seconds
        settled = now.settled.upper_since(then.settled)
        upper = 1.0
        if settled is not None and abs(settled.seconds - seconds) <= SAME_SECONDS:
            upper = estimated(settled).bounds.upper
        return Bounds(bounds.lower, min(bounds.upper, upper))

    def is_steady(self) -> bool:
        """Whether power and utilization of each interval are near their mean over a full window."""
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
        parts = _grown_each(after.time_seconds, before.time_seconds)
        parted = sum(parts.values())
        flops = {}
        if before.flops or began:  # a new precision has done nothing before
            flops = _over_each(_grown_each(after.flops, before.flops), measured)
        rates = _mean_each(_read(after), _read(before), measured, began=began)
        dram = rates.pop("dram_bytes", None)
        used = _over(_grown(after.busy_seconds, before.busy_seconds), polled)
        saturated = _grown(after.saturation_seconds, before.saturation_seconds)
        units = _grown_each(now.units, then.units)
        work = _flops_bounds(before, after, ran.get("flops_upper"))
        traffic = now.traffic.since(then.traffic) if dram is None else None
        counted = now.unread == then.unread
        point = intensity(sum(flops.values()), dram) if flops and counted else None
        likely = moved = None
        if dram is None:
            likely = now.dram_estimate.since(then.dram_estimate)
            moved = now.traffic_estimate.since(then.traffic_estimate)
        return Recent(
            seconds=ran.get("limited_seconds") or polled,
            busy_ratio=rates.get("engine", used),
            utilization_ratio=used,
            memory_utilization_ratio=now.memory.since(then.memory),
            saturation_ratio=_over(saturated, parted),
            saturation_bounds=self._saturation_bounds(),
            saturation_unit=max(units, key=units.__getitem__, default=None) if saturated else None,
            active_ratio=rates,
            time_parts=_over_each(parts, parted),
            time_bounds={} if parted else _bounds_between(before, after, ran),
            limited_ratio=_over_each(limited, sum(limited.values())),
            limiter=self._limiter.limiter,
            roof_ratio=_mean_each(after.roof_seconds, before.roof_seconds, measured, began=began),
            flops_per_second=flops,
            flops_bounds_per_second=work,
            dram_bytes_per_second=dram,
            dram_bounds_bytes_per_second=traffic,
            estimates={} if likely is None else {"dram": likely},
            dram_estimate_bytes_per_second=moved or None,
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


def _mean_each(
    after: Mapping[str, float], before: Mapping[str, float], seconds: float, *, began: bool
) -> dict[str, float]:
    """Return mean rates; without what was not read at `before`, unless reading has just begun."""
    known = {label: total for label, total in after.items() if began or label in before}
    return _over_each(_grown_each(known, before), seconds)


def _over_each(amounts: Mapping[str, float], seconds: float) -> dict[str, float]:
    return {label: amount / seconds for label, amount in amounts.items()} if seconds else {}


def _leaves_out_work(saturation: Saturation | None) -> bool:
    unread = () if saturation is None else saturation.unmeasured
    return any(unit not in ("sm", "int") for unit in unread)


def _bounds_between(
    before: ShareTotals, after: ShareTotals, ran: Mapping[str, float]
) -> dict[str, Bounds]:
    seconds = ran.get("time_upper_seconds", 0.0)
    lower = _over_each(_grown_each(after.time_lower_seconds, before.time_lower_seconds), seconds)
    upper = _over_each(_grown_each(after.time_upper_seconds, before.time_upper_seconds), seconds)
    return {part: Bounds(lower[part], upper[part]) for part in lower}


def _flops_bounds(before: ShareTotals, after: ShareTotals, seconds: float | None) -> Bounds | None:
    lower = _over(_grown(after.flops_lower, before.flops_lower), seconds)
    upper = _over(_grown(after.flops_upper, before.flops_upper), seconds)
    return None if lower is None or upper is None else Bounds(lower, max(lower, upper))


def _read(totals: ShareTotals) -> dict[str, float]:
    """Return the active seconds of each counter, and the bytes of DRAM."""
    whole = {
        "engine": totals.engine_active_seconds,
        "sm": totals.sm_active_seconds,
        "dram": totals.dram_active_seconds,
        "dram_bytes": totals.dram_bytes,
    }
    known = {name: total for name, total in whole.items() if total is not None}
    return {**known, **totals.pipe_active_seconds}
