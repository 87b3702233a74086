# SPDX-License-Identifier: Apache-2.0
"""What outlives a tick for one GPU: its ceilings, its totals, and the picture of it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from exporter.clock import GAP_INTERVALS, stale_after_seconds
from exporter.derive import NO_STALL, Derived, IdleRules, derive_share
from exporter.derive.units import shown
from exporter.errors import one_line
from exporter.model.reading import (
    SUSPENDED,
    Activity,
    Device,
    Reading,
    ShareReading,
    SlotReport,
    XidRecord,
)
from exporter.model.snapshot import Ceilings, Gpu
from exporter.publisher.ranks import KnownGpu, Ranks
from exporter.publisher.share import TrackedShare, share_picture
from exporter.publisher.totals import BoardIntegral
from exporter.specs import SpecBook, share_ceilings

NOT_FRESH = "no fresh reading"
FAULT = "is read, but its readings cannot be worked with"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the configuration says about turning readings into a snapshot."""

    interval_seconds: float = 1.0
    forget_after_seconds: float = 86400.0
    precision: str | None = None
    idle: IdleRules = field(default_factory=IdleRules)
    owners: bool = True
    """Whether to tell whose the processes are."""

    @property
    def longest_interval_seconds(self) -> float:
        """Nothing is integrated over an interval that is longer."""
        return GAP_INTERVALS * self.interval_seconds

    @property
    def stale_after_seconds(self) -> float:
        """The age at which a reading is not shown any more.

        Half an interval less than the promise: at the third tick without a reading it is stale,
        whatever the jitter of a few milliseconds between reading and tick.
        """
        interval = self.interval_seconds
        return stale_after_seconds(interval) - min(interval, 1.0) / 2


class TrackedGpu:
    """One physical GPU from its first report until it is forgotten."""

    def __init__(
        self, device: Device, specs: SpecBook, rules: Rules, ranks: Ranks, now: float
    ) -> None:
        self.device = device
        self.ceilings: Ceilings | None = None
        self.board = BoardIntegral()
        self.shares: dict[int | None, TrackedShare] = {}
        self.reading: Reading | None = None
        """The last one that was integrated."""
        self.problem: str | None = None
        self.seen_at = now
        """Monotonic time at which it was last known to be there."""
        self.stale = False
        self._specs = specs
        self._rules = rules
        self._ranks = ranks
        self._precision: str | None = None
        self._ceilings_due = True
        self._ended_cuts: Counter[str] = Counter()
        """Those of shares that are no more."""
        self._untold: str | None = None
        """Why nothing can be said with the last reading."""
        self._logged: type[Exception] | None = None
        """What kind of fault is in the log, until a picture of the GPU could be made."""

    def reconfigure(self, specs: SpecBook, rules: Rules) -> None:
        """Use other specs and rules from the next report on."""
        self._specs, self._rules = specs, rules
        self._ceilings_due = True

    @property
    def cuts(self) -> Counter[str]:
        """How many activities had to be cut to 1 since the GPU was first seen, by source."""
        cuts = Counter(self._ended_cuts)
        for share in self.shares.values():
            cuts.update(share.integral.cuts)
        return cuts

    @property
    def known(self) -> KnownGpu:
        """What tells which processes run on it."""
        return self.device, self.reading.shares if self.reading is not None else ()

    def take(self, report: SlotReport, now: float) -> None:
        """Take what is known after a round; integrate its reading if that is a new one.

        What goes wrong in it costs no other GPU anything: this one is down until a later reading.
        """
        self.problem = report.problem
        if report.problem == SUSPENDED:
            self.seen_at = now
        try:
            self._take(report, now)
        except Exception as error:
            self._untold = self._told_fault(error)

    def _take(self, report: SlotReport, now: float) -> None:
        reading = report.reading
        device = self.device if reading is None else reading.device
        changed = device is not self.device and device != self.device
        self.device = device
        if self._ceilings_due or changed or self._ranks.precision(device.uuid) != self._precision:
            self._set_ceilings()
        last = self.reading
        if reading is None or (
            last is not None and reading.monotonic_seconds <= last.monotonic_seconds
        ):
            return
        self.seen_at = now
        self.reading = reading  # also if it goes wrong: no interval may count twice
        self._integrate(reading, last)
        self._untold = None

    def _told_fault(self, error: Exception) -> str:
        """Return what went wrong, for whoever looks at the GPU; log each kind of it once."""
        if type(error) is not self._logged:
            self._logged = type(error)
            log.error("GPU %d (%s) %s", self.device.index, self.device.uuid, FAULT, exc_info=error)
        return f"{FAULT}: {type(error).__name__}: {one_line(str(error))}"

    def _set_ceilings(self) -> None:
        self._ceilings_due = True
        self._precision = self._ranks.precision(self.device.uuid)
        self.ceilings = self._specs.ceilings(self.device, self._precision or self._rules.precision)
        for gpu_instance, share in self.shares.items():
            share.ceilings = self._share_ceilings(gpu_instance)
        self._ceilings_due = False

    def _share_ceilings(self, gpu_instance: int | None) -> Ceilings | None:
        if gpu_instance is None or self.ceilings is None:
            return self.ceilings
        return share_ceilings(self.ceilings, self.device, gpu_instance)

    def _integrate(self, reading: Reading, last: Reading | None) -> None:
        elapsed = 0.0
        if last is not None:
            elapsed = reading.monotonic_seconds - last.monotonic_seconds
            if elapsed > self._rules.longest_interval_seconds:
                elapsed = 0.0
        whole = reading.shares[0].activity if not reading.device.mig and reading.shares else None
        energy = self.board.add(reading.vitals, self._within_gap(whole), elapsed)
        present: dict[int | None, TrackedShare] = {}
        for share_reading in self._shares(reading):
            share = self._share(share_reading, reading)
            present[share_reading.gpu_instance] = share
            self._integrate_share(
                share,
                self._expected(share, share_reading, reading),
                reading,
                last if elapsed else None,
                elapsed,
                energy if share_reading.gpu_instance is None else None,
            )
        ended = [share for number, share in self.shares.items() if share is not present.get(number)]
        for share in ended:
            self._ended_cuts.update(share.integral.cuts)
        self.shares = present

    def _shares(self, reading: Reading) -> tuple[ShareReading, ...]:
        """Return the shares as they may be shown: without owners if they are not to be told."""
        if self._rules.owners:
            return reading.shares
        return tuple(
            replace(
                share,
                processes=tuple(replace(process, owner=None) for process in share.processes),
            )
            if share.processes
            else share
            for share in reading.shares
        )

    def _within_gap(self, activity: Activity | None) -> Activity | None:
        if activity is None or activity.seconds > self._rules.longest_interval_seconds:
            return None
        return activity

    def _share(self, share_reading: ShareReading, reading: Reading) -> TrackedShare:
        """Return the share's state; a GPU instance that was made anew starts anew."""
        number = share_reading.gpu_instance
        identity = tuple(
            instance for instance in reading.device.instances if instance.gpu_instance == number
        )
        share = self.shares.get(number)
        if share is None or share.identity != identity:
            share = TrackedShare(identity, self._share_ceilings(number), reading.timestamp_seconds)
        return share

    def _expected(
        self, share: TrackedShare, share_reading: ShareReading, reading: Reading
    ) -> ShareReading:
        """Return the reading, as one without counters once they were silent for too long.

        Until then an interval without counters publishes no estimate: a GPU does not flip.
        """
        now = reading.monotonic_seconds
        if share.answered_at is None or share_reading.activity is not None:
            share.answered_at = now
        elif share_reading.counters is not None and (
            now - share.answered_at > stale_after_seconds(self._rules.interval_seconds)
        ):
            return replace(share_reading, counters=None)
        return share_reading

    def _integrate_share(
        self,
        share: TrackedShare,
        share_reading: ShareReading,
        reading: Reading,
        last: Reading | None,
        elapsed: float,
        energy_joules: float | None,
    ) -> None:
        derived = derive_share(
            reading.device,
            reading.vitals,
            share_reading,
            share.ceilings,
            self._rules.idle,
            previous=last.vitals if last is not None else None,
            seconds=elapsed or None,
            stall=self._ranks.stall(reading.device.uuid, share_reading.gpu_instance) or NO_STALL,
        )
        activity = self._within_gap(share_reading.activity)
        utilization = (
            reading.vitals.utilization if elapsed and share_reading.gpu_instance is None else None
        )
        share.gaps.advance(
            reading.monotonic_seconds,
            elapsed if activity is None else activity.seconds,
            derived.gap if elapsed or activity is not None else None,
        )
        counted = activity is not None or (
            share_reading.counters is None and utilization is not None
        )
        self._watch(share, reading, seen=counted and derived.idle is not None)
        if counted:
            share.integral.add(
                utilization, activity, derived, energy_joules, reading.timestamp_seconds
            )
        elif utilization is not None:
            share.integral.add(
                utilization, None, Derived(), energy_joules, reading.timestamp_seconds
            )
        if share_reading.counters is not None and share_reading.activity is None:
            # The counters skipped a round: what was measured last stands for up to 3 intervals.
            share.derived = replace(share.derived, held=derived.held, holder=derived.holder)
            return
        if derived.idle is None:
            share.integral.lose_sight(reading.timestamp_seconds)
        share.derived = derived
        share.activity = None if share_reading.activity is None else shown(share_reading.activity)

    def _watch(self, share: TrackedShare, reading: Reading, *, seen: bool) -> None:
        """Take note of whether an interval shows if the share was idle.

        Idle time ends where too long nobody saw it; a round that the counters skip is not long.
        """
        now, until = reading.monotonic_seconds, share.watched_until
        if until is not None and now - until > self._rules.longest_interval_seconds:
            share.integral.lose_sight(reading.timestamp_seconds)
        if seen or until is None:
            share.watched_until = now

    def picture(self, now: float, xids: Mapping[int, XidRecord]) -> Gpu:
        """Return what is shown of it at monotonic time `now`.

        Where that goes wrong the GPU is shown as down, and why.
        """
        try:
            reading = self.reading
            problem = self.problem or self._untold or self._staleness(now)
            if reading is None or problem is not None:
                return self._down(problem or NOT_FRESH, xids)
            shown = self._up(reading, xids)
        except Exception as error:
            return self._down(self._told_fault(error), xids)
        if self._logged is not None:
            self._logged = None
            log.info("GPU %d (%s) is shown again", self.device.index, self.device.uuid)
        return shown

    def _staleness(self, now: float) -> str | None:
        """Return that there is no fresh reading, where there is none."""
        reading = self.reading
        stale = (
            reading is None or now - reading.monotonic_seconds >= self._rules.stale_after_seconds
        )
        if stale != self.stale:
            self.stale = stale
            # Whoever reads the GPU finds and logs what is wrong with it.
            what = NOT_FRESH if stale else "no longer without a fresh reading"
            log.debug("GPU %d (%s): %s", self.device.index, self.device.uuid, what)
        return NOT_FRESH if stale else None

    def _down(self, problem: str, xids: Mapping[int, XidRecord]) -> Gpu:
        reading = self.reading
        return Gpu(
            device=self.device,
            up=False,
            down_reason=problem,
            last_read_timestamp_seconds=reading.timestamp_seconds if reading else None,
            ceilings=self.ceilings,
            xids=xids,
            states={"gpu": "suspended"} if problem == SUSPENDED else {},
        )

    def _up(self, reading: Reading, xids: Mapping[int, XidRecord]) -> Gpu:
        return Gpu(
            device=self.device,
            up=True,
            last_read_timestamp_seconds=reading.timestamp_seconds,
            ceilings=self.ceilings,
            vitals=reading.vitals,
            board=reading.board,
            health=reading.health,
            xids=xids,
            totals=self.board.totals(),
            shares=tuple(
                share_picture(share_reading, self.shares[share_reading.gpu_instance], reading)
                for share_reading in self._shares(reading)
            ),
            states=reading.states,
        )
