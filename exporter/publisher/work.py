# SPDX-License-Identifier: Apache-2.0
"""The FLOPs that training jobs report for one share: an estimate, and a certain lower bound.

The growth between two reports was done between them, except for one step, which counts as a whole
when it begins or ends: the lower bound excludes the largest growth between two reports.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from exporter.derive.work import (
    Work,
    busier,
    model_flops_utilization,
    pipe_estimates,
    rates_of_work,
    recently_worked,
    with_estimates,
    with_faster,
    worked,
)
from exporter.model.reading import Reading
from exporter.model.snapshot import RECENT_SECONDS, Share
from exporter.model.training import FLOPS_EXCEED_PEAK
from exporter.publisher.ranks import WorkClaim
from exporter.publisher.ranks.check import CHECK_SECONDS, TOLERATED_RATIO
from exporter.publisher.recent import ESTIMATE
from exporter.specs.precisions import pipe_peak, tensor_precision


class _Statement(NamedTuple):
    seconds: float
    flops: float


class StatedWork:
    """Adds up the FLOPs that the processes on one share report, limited to what it can have done.

        lower(t) = lower(t0) + max(stated(t0, t), other(t) - other(t0))

    with `other` the share's own lower bound. t0 is the last time without any report, after a gap,
    or of a change between counters and estimates.
    """

    def __init__(self, disbelieved: Counter[str] | None = None) -> None:
        self._disbelieved = Counter() if disbelieved is None else disbelieved
        self.lower: float | None = None
        """The lower bound of the share's total FLOPs; it never falls."""
        self.work: Work | None = None
        """The rate of the last 10 s; None if nothing is reported."""
        self._since = float("-inf")
        """t0."""
        self._lower = self._other = self._upper = 0.0
        """At t0: `lower`, and the share's other lower and upper totals."""
        self._last: dict[str, _Statement] = {}
        """By report id: the last report that counts."""
        self._claimed = self._dropped = 0.0
        """Reported FLOPs since t0, and the dropped excess."""
        self._largest: dict[str, float] = {}
        """By report id: the largest growth between two reports."""
        self._ended = 0.0
        self._over_since: float | None = None
        self._measured = False
        self._history: dict[str, deque[_Statement]] = {}

    def take(
        self,
        claims: Sequence[WorkClaim],
        now: float,
        lower: float | None,
        upper: float | None,
        *,
        gap: bool,
        measured: bool,
    ) -> None:
        """Take the last report of each process at the monotonic time of a reading.

        `lower` and `upper` are the share's other bounds of its total FLOPs, and `measured` says
        that hardware counters give the lower one. Time before a `gap` was not observed.
        """
        self._rate(claims, now)
        if lower is None or upper is None:
            self.work = None
            return
        certain = 0.0
        if claims and not gap:
            self._count(claims)
            believed = self._believe(now, upper - self._upper)
            # FLOPs reported while counters measured must not be added at once when these stop.
            if not measured and not self._measured:
                # These may have been done before t0, or may not be done yet.
                certain = believed - self._ended - sum(self._largest.values())
        raised = self._lower + max(certain, lower - self._other)
        self.lower = max(raised, self.lower or 0.0)
        if gap or not claims or measured != self._measured:
            self._measured = measured
            self._since, self._lower, self._other, self._upper = now, self.lower, lower, upper
            self._claimed = self._dropped = self._ended = 0.0
            self._last.clear()
            self._largest.clear()
            self._over_since = None

    def _count(self, claims: Iterable[WorkClaim]) -> None:
        """Add the growth of each process since its last report."""
        before, self._last = self._last, {}
        for claim in claims:
            last = before.pop(claim.report_id, None)
            if not claim.is_done or (last is None and claim.seconds <= self._since):
                continue
            statement = self._last[claim.report_id] = _Statement(claim.seconds, claim.flops)
            if last is not None:
                grown = max(0.0, statement.flops - last.flops)
                self._claimed += grown
                largest = self._largest.get(claim.report_id, 0.0)
                self._largest[claim.report_id] = max(largest, grown)
        for gone in before:
            self._ended += self._largest.pop(gone, 0.0)

    def _believe(self, now: float, room: float) -> float:
        """Return the reported FLOPs, limited to `room`; drop an excess after `CHECK_SECONDS`."""
        claimed = self._claimed - self._dropped
        if claimed - room <= TOLERATED_RATIO * claimed:
            self._over_since = None
        elif self._over_since is None:
            self._over_since = now
        elif now - self._over_since >= CHECK_SECONDS:
            self._disbelieved[FLOPS_EXCEED_PEAK] += 1
            self._dropped += claimed - room
            self._over_since = None
        return min(claimed, room)

    def _rate(self, claims: Sequence[WorkClaim], now: float) -> None:
        before, self._history = self._history, {}
        rate = least = 0.0
        precisions: set[str | None] = set()
        by_peak: dict[str | None, float] = {}
        for claim in claims:
            history = before.get(claim.report_id) or deque()
            self._history[claim.report_id] = history
            if not history or claim.seconds > history[-1].seconds:
                history.append(_Statement(claim.seconds, claim.flops))
            last = history[-1]
            while len(history) > 2 and last.seconds - history[1].seconds >= RECENT_SECONDS:
                history.popleft()
            if len(history) < 2:
                continue
            first = history[0]
            # A process that has been silent for longer than this span did no more in that time.
            seconds = max(last.seconds - first.seconds, now - last.seconds)
            grown = (last.flops - first.flops) / seconds
            rate += grown
            if claim.is_done:
                least += _certain(history, now - RECENT_SECONDS) / RECENT_SECONDS
            name = claim.precision
            precisions.add(None if name is None else tensor_precision(name))
            peak = None if name is None else pipe_peak(name)
            by_peak[peak] = by_peak.get(peak, 0.0) + grown
        named = frozenset(each for each in precisions if each is not None)
        whole = None if None in precisions else named
        told = {peak: flops for peak, flops in by_peak.items() if peak is not None}
        work = Work(rate, least, whole, None if None in by_peak else told)
        self.work = work if precisions else None


def with_work(
    share: Share, stated: StatedWork, reading: Reading, *, steady: Callable[[], bool]
) -> Share:
    """Return a share with its jobs' FLOPs, which bound the last interval only while `steady`."""
    if stated.lower is not None and stated.lower != share.totals.flops_lower:
        share = replace(share, totals=replace(share.totals, flops_lower=stated.lower))
    work, recent, ceilings = stated.work, share.recent, share.ceilings
    if work is None or ceilings is None or share.roofline is None:
        return share
    vitals, device = reading.vitals, reading.device
    if any(process.transformer_engine for process in share.processes or ()):
        work = with_faster(work)
    rates = rates_of_work(ceilings, vitals, device, work.precisions)
    measured = share.saturation is not None and share.saturation.source != ESTIMATE
    bounds = (recent or share.roofline).flops_bounds_per_second
    believed = work.flops_per_second if bounds is None else min(work.flops_per_second, bounds.upper)
    gauges_stay = measured or not steady()
    saturation = share.saturation
    if saturation is not None and rates is not None and not gauges_stay:
        saturation = busier(saturation, work, rates)
    if saturation is not None:
        pipes = pipe_estimates(work, ceilings, vitals, device)
        saturation = with_estimates(saturation, pipes)
    if recent is not None:
        estimates = {} if saturation is None else saturation.estimates
        recent = replace(
            recently_worked(recent, work, rates, believed, measured=measured),
            estimates={**estimates, **recent.estimates},
            model_flops_utilization_ratio=model_flops_utilization(work, ceilings),
        )
    return replace(
        share,
        saturation=saturation,
        roofline=worked(share.roofline, work, believed, measured=gauges_stay),
        recent=recent,
    )


def _certain(history: Sequence[_Statement], since: float) -> float:
    """Return a lower bound of the FLOPs since `since`."""
    within = [each for each in history if each.seconds >= since]
    if len(within) < 2:
        return 0.0
    largest = max(after.flops - before.flops for before, after in pairwise(history))
    return max(0.0, within[-1].flops - within[0].flops - largest)
