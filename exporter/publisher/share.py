# SPDX-License-Identifier: Apache-2.0
"""The state of one share of a GPU from tick to tick, and its part of the snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from exporter.clock import GAP_INTERVALS
from exporter.derive import Derived, derive_share
from exporter.derive.diagnosis.evidence import are_orphans
from exporter.derive.idle import with_workload
from exporter.derive.stall import Stall
from exporter.derive.timeparts import UTILIZATION_MARGIN_RATIO
from exporter.derive.units import cut_activity
from exporter.model.host import HostActivity
from exporter.model.reading import Activity, Reading, ShareReading
from exporter.model.snapshot import Bounds, Ceilings, Share
from exporter.model.training import FLOPS_EXCEED_PEAK, STALL_EXCEEDS_IDLE
from exporter.model.workload import NO_WORK, ShareWork
from exporter.publisher.board import EnergyHistory
from exporter.publisher.ranks import GapClock, WorkClaim
from exporter.publisher.recent import RecentWindow
from exporter.publisher.rules import Rules
from exporter.publisher.skipped_rounds import BoardRound, joined
from exporter.publisher.totals import ShareIntegral
from exporter.publisher.work import StatedWork, with_work

SAMPLE_SECONDS = 1.0
"""How old the driver's utilization may be when it is read."""


@dataclass
class NodeCounts:
    """Counts of implausible values since the start, over all GPUs, forgotten ones too."""

    cuts: Counter[str] = field(default_factory=Counter)
    """By source: activities above 1, which were cut to 1."""
    disbelieved: Counter[str] = field(
        default_factory=lambda: Counter({STALL_EXCEEDS_IDLE: 0, FLOPS_EXCEED_PEAK: 0})
    )
    """By reason: minutes in which the claim of a training job was cut."""
    logged_precisions: set[str] = field(default_factory=set)
    """Precisions without a known peak that jobs reported; each is logged once."""


class Round(NamedTuple):
    """A reading of a GPU, and the interval that ends with it."""

    reading: Reading
    last: Reading | None
    """The reading before; None at the first one and after a gap."""
    seconds: float


def within_gap(activity: Activity | None, rules: Rules) -> Activity | None:
    """Return the activity if it may be integrated; None if it spans a gap or is too old."""
    if activity is None or not activity.integrable:
        return None
    if activity.seconds > rules.longest_interval_seconds:
        return None
    return activity


class TrackedShare:
    """The state of one share from tick to tick."""

    def __init__(
        self, identity: object, ceilings: Ceilings | None, started: float, counts: NodeCounts
    ) -> None:
        self.identity = identity
        self.ceilings = ceilings
        self.integral = ShareIntegral(started, counts.cuts)
        self.totals = self.integral.totals()
        self.recent = RecentWindow()
        self._energy = EnergyHistory()
        self.stated = StatedWork(counts.disbelieved)
        self.gaps = GapClock()
        self.activity: Activity | None = None
        self.derived = Derived()
        self._history = self.derived.history
        self._answered_at: float | None = None
        """Monotonic time of the last activity, or of the first reading and after a gap."""
        self._counted_by: str | None = None
        self._skipped: list[BoardRound] = []
        """Those for which the counters gave no activity."""
        self.work = NO_WORK
        self.same_work_since: float | None = None
        self._users: object = None
        self.host: HostActivity | None = None
        self.orphaned_seconds: float | None = None
        self._observed_until: float | None = None

    def integrate(
        self,
        share_reading: ShareReading,
        read: Round,
        rules: Rules,
        energy_joules: float | None,
        stall: Stall,
        claims: Sequence[WorkClaim] = (),
        work: ShareWork = NO_WORK,
    ) -> None:
        """Derive one interval of the share and add it to the totals.

        `stall` and `claims` are what its training ranks report; `energy_joules` is of the board.
        """
        reading, last, elapsed = read
        work_is_new = _identities(work) != _identities(self.work)
        users = share_reading.processes and {each.owner for each in share_reading.processes}
        if work_is_new or users != self._users or self.same_work_since is None:
            self._users, self.same_work_since = users, reading.timestamp_seconds
        self.work = work
        lasts = are_orphans(share_reading.processes)
        self.orphaned_seconds = (self.orphaned_seconds or 0.0) + elapsed if lasts else None
        share_reading = self._expected(share_reading, read, rules)
        skipped = share_reading.counters is not None and share_reading.activity is None
        whole = BoardRound(
            elapsed, reading.vitals, None if last is None else last.vitals, energy_joules
        )
        if not elapsed:
            self._skipped.clear()
        if share_reading.activity is not None:
            whole = joined(self._skipped, whole, share_reading.activity)
        self._energy.add(reading.monotonic_seconds, elapsed, energy_joules)

        def derive(share_reading: ShareReading) -> Derived:
            found = derive_share(
                reading.device,
                whole.vitals,
                share_reading,
                self.ceilings,
                rules.idle,
                previous=whole.previous,
                seconds=whole.seconds or None,
                stall=stall,
                history=self._history,
            )
            activity, roofline = share_reading.activity, found.roofline
            if activity is None or roofline is None:
                return found
            known = self.integral.shared_time.without_partial_flops(roofline, activity)
            return found if known is roofline else replace(found, roofline=known)

        derived = shown = derive(share_reading)
        given = share_reading.activity
        if given is not None and not given.integrable:
            # Show an activity that is too old, but integrate as if there were no counters.
            share_reading = replace(share_reading, activity=None, counters=None)
            derived = derive(share_reading)
        self._history = derived.history
        if skipped and elapsed:
            self._skipped.append(whole)
        else:
            self._skipped.clear()
        drawn, activity = whole.energy_joules, share_reading.activity
        if activity is not None and activity.lag_seconds:
            ended = reading.monotonic_seconds - activity.lag_seconds
            drawn = self._energy.between(ended - activity.seconds, ended)
        self._add(share_reading, read, derived, rules, drawn)
        self.integral.add_allocated(
            elapsed, allocated=work.allocated, held=derived.held, anew=work_is_new
        )
        self.totals = self.integral.totals()
        self.stated.take(
            claims,
            reading.monotonic_seconds,
            self.totals.flops_lower,
            self.totals.flops_upper,
            gap=not elapsed,
            measured=share_reading.counters is not None,
        )
        self.recent.add(
            reading.monotonic_seconds,
            elapsed,
            self.totals,
            derived.saturation,
            reading.vitals.utilization if share_reading.gpu_instance is None else None,
            derived.dram_integral_bounds,
            energy_joules,
            None if derived.roofline is None else derived.roofline.dram_estimate_bytes_per_second,
        )
        if skipped:
            # The counters skipped a round: keep showing their last values for up to 3 intervals.
            self.derived = replace(self.derived, held=derived.held, holder=derived.holder)
            return
        self.derived = shown
        self.activity = None if given is None else cut_activity(given)

    def _add(
        self,
        share_reading: ShareReading,
        read: Round,
        derived: Derived,
        rules: Rules,
        energy_joules: float | None,
    ) -> None:
        reading, _, elapsed = read
        activity = within_gap(share_reading.activity, rules)
        utilization = (
            reading.vitals.utilization if elapsed and share_reading.gpu_instance is None else None
        )
        self.gaps.advance(
            reading.monotonic_seconds,
            elapsed if activity is None else activity.seconds,
            derived.gap if elapsed or activity is not None else None,
            margin_ratio=0.0 if activity is not None else UTILIZATION_MARGIN_RATIO,
            lag_seconds=0.0 if activity is not None else SAMPLE_SECONDS,
        )
        counted = activity is not None or (
            share_reading.counters is None and utilization is not None
        )
        self._observe(reading, rules, seen=counted and derived.idle is not None)
        self.integral.add(
            utilization,
            activity,
            derived if counted else Derived(),
            energy_joules,
            reading.timestamp_seconds,
        )
        skipped = share_reading.counters is not None and share_reading.activity is None
        if derived.idle is None and not skipped:
            self.integral.end_idle(reading.timestamp_seconds)

    def add_stall(self, method: str, seconds: Bounds) -> None:
        """Add to the inferred stall."""
        self.integral.add_stall(method, seconds)
        self.totals = self.integral.totals()

    def _expected(self, share_reading: ShareReading, read: Round, rules: Rules) -> ShareReading:
        """Return the reading; without counters once these gave nothing for 3 intervals, so that a
        GPU does not flip between measured and estimated."""
        now = read.reading.monotonic_seconds
        if share_reading.activity is not None:
            self._answered_at, self._counted_by = now, share_reading.activity.source
            return share_reading
        if self._answered_at is None or read.last is None:
            self._answered_at, self._counted_by = now, None
        # Half an interval more, for jitter.
        waits = now - self._answered_at <= (GAP_INTERVALS + 0.5) * rules.interval_seconds
        counters = (share_reading.counters or self._counted_by) if waits else None
        return replace(share_reading, counters=counters)

    def _observe(self, reading: Reading, rules: Rules, *, seen: bool) -> None:
        """End the idle time after a gap; `seen` says that the interval shows idle or busy."""
        now, until = reading.monotonic_seconds, self._observed_until
        if until is not None and now - until > rules.longest_interval_seconds:
            self.integral.end_idle(reading.timestamp_seconds)
        if seen or until is None:
            self._observed_until = now


def _identities(work: ShareWork) -> set[tuple[str, str, str]]:
    """Return the identities of the workloads, without details that sources add later."""
    return {(each.namespace, each.pod, each.job) for each in work.workloads}


def share_picture(share_reading: ShareReading, share: TrackedShare, reading: Reading) -> Share:
    """Return a share of the snapshot."""
    derived = share.derived
    picture = Share(
        gpu_instance=share_reading.gpu_instance,
        ceilings=share.ceilings,
        totals=share.totals,
        utilization=reading.vitals.utilization if share_reading.gpu_instance is None else None,
        memory=share_reading.memory,
        processes=share_reading.processes,
        same_work_since_seconds=share.same_work_since,
        held=derived.held,
        holder=with_workload(derived.holder, share.work),
        work=share.work,
        activity=share.activity,
        saturation=derived.saturation,
        time_parts=derived.time_parts,
        time_bounds=derived.time_bounds,
        roofline=derived.roofline,
        limiter=derived.limiter,
        recent=share.recent.recent(),
        data_stall=derived.data_stall,
        host=share.host,
        orphaned_seconds=share.orphaned_seconds,
    )
    return with_work(picture, share.stated, reading, steady=share.recent.is_steady)
