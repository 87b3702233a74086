# SPDX-License-Identifier: Apache-2.0
"""The one clock: each tick reads, merges, integrates, derives and publishes one snapshot."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from exporter.clock import GAP_INTERVALS, Clock, stale_after_seconds
from exporter.derive import Derived, IdleRules, derive_share
from exporter.integrate import BoardIntegral, ShareIntegral
from exporter.reading import (
    SUSPENDED,
    Activity,
    Device,
    Reading,
    ShareReading,
    SlotReport,
    XidRecord,
)
from exporter.snapshot import Ceilings, Gpu, Share, Snapshot, SourceState
from exporter.specs import SpecBook, share_ceilings

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


class Readers(Protocol):
    """Whoever reads the GPUs; `exporter.fleet.Fleet` on real ones."""

    name: str
    """The source that the node's state is published under: nvml, replay, simulate."""

    def round(self, wait_seconds: float) -> None:
        """Ask for a round of readings and wait for it, at most so long."""

    def reports(self) -> Sequence[SlotReport]:
        """Return what is known of every GPU."""

    def xids(self) -> Mapping[str, Mapping[int, XidRecord]]:
        """Return the Xids seen so far, by UUID."""

    def devices(self) -> Mapping[str, int]:
        """Return how many GPUs are counted, by who counts: pci, driver, nvml."""

    @property
    def problem(self) -> str | None:
        """Why no GPU can be read at all, in one line."""

    @property
    def failed_initialisations(self) -> int:
        """How often the driver library could not be initialised."""


class _ShareState:
    """What outlives a tick for one share."""

    def __init__(self, identity: object, ceilings: Ceilings | None, started: float) -> None:
        self.identity = identity
        self.ceilings = ceilings
        self.integral = ShareIntegral(started)
        self.activity: Activity | None = None
        """The last one that answered."""
        self.derived = Derived()
        self.answered_at: float | None = None
        """Monotonic time of the last activity; of the first read before there is any."""


class _GpuState:
    """What outlives a tick for one physical GPU."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.ceilings: Ceilings | None = None
        self.board = BoardIntegral()
        self.shares: dict[int | None, _ShareState] = {}
        self.reading: Reading | None = None
        """The last one that was integrated."""
        self.problem: str | None = None
        self.seen_at = 0.0
        self.stale = False


class Publisher:
    """Ticks every interval; each tick ends in one immutable snapshot for every subscriber."""

    def __init__(
        self,
        readers: Readers,
        specs: SpecBook,
        rules: Rules,
        clock: Clock,
        subscribers: Iterable[Callable[[Snapshot], None]] = (),
        *,
        pace: float = 1.0,
    ) -> None:
        """Wire the parts; `clock` runs `pace` times as fast as the time that waiting takes."""
        self._readers = readers
        self._specs = specs
        self._rules = rules
        self._clock = clock
        self._subscribers = tuple(subscribers)
        self._pace = pace
        self._gpus: dict[str, _GpuState] = {}
        self._forgotten: set[str] = set()
        """GPUs that readers may still name but that were not seen for too long."""
        self._reconfiguration: tuple[SpecBook, Rules] | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        """Start ticking."""
        self._thread.start()

    def stop(self, wait_seconds: float = 1.0) -> None:
        """Stop ticking; wait for the tick under way, but not for long."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(wait_seconds)

    def reconfigure(self, specs: SpecBook, rules: Rules) -> None:
        """Use other specs and rules from the next tick on."""
        self._reconfiguration = (specs, rules)

    def _run(self) -> None:
        due = self._clock.monotonic()
        while not self._stopped.is_set():
            try:
                self.tick()
            except Exception:
                log.exception("a tick failed; the last snapshot stays")
            interval = self._rules.interval_seconds
            due += interval
            now = self._clock.monotonic()
            if due <= now:  # late: skip what was missed, keep the phase
                due += interval * ((now - due) // interval + 1)
            self._stopped.wait((due - now) / self._pace)

    def tick(self) -> Snapshot:
        """Read, integrate, derive and publish once; return the snapshot."""
        if self._reconfiguration is not None:
            (self._specs, self._rules), self._reconfiguration = self._reconfiguration, None
            for state in self._gpus.values():
                self._set_ceilings(state)
        self._readers.round(self._rules.interval_seconds / 2)
        now = self._clock.monotonic()
        reports = self._readers.reports()
        for report in reports:
            self._take(report, now)
        self._forget(now)
        xids = self._readers.xids()
        gpus = tuple(
            self._picture(state, now, xids.get(state.device.uuid, {}))
            for state in sorted(self._gpus.values(), key=lambda state: state.device.index)
        )
        snapshot = Snapshot(
            timestamp_seconds=self._clock.time(),
            gpus=gpus,
            sources=self._source_states(reports, gpus),
            devices=self._readers.devices(),
            problem=self._problem(gpus, reports),
        )
        for subscriber in self._subscribers:
            subscriber(snapshot)
        return snapshot

    # From readings to state.

    @property
    def _longest_interval(self) -> float:
        return GAP_INTERVALS * self._rules.interval_seconds

    @property
    def _stale_after(self) -> float:
        # Half an interval less: at the third tick without a reading it is stale, whatever the
        # jitter of a few milliseconds between reading and tick.
        interval = self._rules.interval_seconds
        return stale_after_seconds(interval) - min(interval, 1.0) / 2

    def _take(self, report: SlotReport, now: float) -> None:
        reading = report.reading
        device = reading.device if reading is not None else report.device
        if device is None:
            return
        if reading is not None or report.problem == SUSPENDED:
            self._forgotten.discard(device.uuid)
        elif device.uuid in self._forgotten:
            return
        state = self._gpus.get(device.uuid)
        if state is None:
            state = self._gpus[device.uuid] = _GpuState(device)
            state.seen_at = now
            self._set_ceilings(state)
        state.problem = report.problem
        if report.problem == SUSPENDED:
            state.seen_at = now
        if reading is None:
            return
        if device is not state.device:
            changed = device != state.device
            state.device = device
            if changed:
                self._set_ceilings(state)
        last = state.reading
        if last is not None and reading.monotonic_seconds <= last.monotonic_seconds:
            return
        state.seen_at = now
        self._integrate(state, reading)
        state.reading = reading

    def _set_ceilings(self, state: _GpuState) -> None:
        state.ceilings = self._specs.ceilings(state.device, self._rules.precision)
        for gpu_instance, share in state.shares.items():
            share.ceilings = self._share_ceilings(state, gpu_instance)

    def _share_ceilings(self, state: _GpuState, gpu_instance: int | None) -> Ceilings | None:
        if gpu_instance is None or state.ceilings is None:
            return state.ceilings
        return share_ceilings(state.ceilings, state.device, gpu_instance)

    def _integrate(self, state: _GpuState, reading: Reading) -> None:
        last = state.reading
        elapsed = 0.0
        if last is not None:
            elapsed = reading.monotonic_seconds - last.monotonic_seconds
            if elapsed > self._longest_interval:
                elapsed = 0.0
        whole = reading.shares[0].activity if not reading.device.mig and reading.shares else None
        energy = state.board.add(reading.vitals, self._within_gap(whole), elapsed)
        present: dict[int | None, _ShareState] = {}
        for share_reading in self._shares(reading):
            share = self._share_state(state, share_reading, reading)
            present[share_reading.gpu_instance] = share
            self._integrate_share(
                share,
                self._expected(share, share_reading, reading),
                reading,
                last if elapsed else None,
                elapsed,
                energy if share_reading.gpu_instance is None else None,
            )
        state.shares = present

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
        if activity is None or activity.seconds > self._longest_interval:
            return None
        return activity

    def _share_state(
        self, state: _GpuState, share_reading: ShareReading, reading: Reading
    ) -> _ShareState:
        """Return the share's state; a GPU instance that was made anew starts anew."""
        number = share_reading.gpu_instance
        identity = tuple(
            instance for instance in reading.device.instances if instance.gpu_instance == number
        )
        share = state.shares.get(number)
        if share is None or share.identity != identity:
            share = _ShareState(
                identity, self._share_ceilings(state, number), reading.timestamp_seconds
            )
        return share

    def _expected(
        self, share: _ShareState, share_reading: ShareReading, reading: Reading
    ) -> ShareReading:
        """Return the reading, as not measurable once its counters were silent for too long.

        Until then an interval without counters publishes no estimate: a GPU does not flip.
        """
        now = reading.monotonic_seconds
        if share.answered_at is None or share_reading.activity is not None:
            share.answered_at = now
        elif share_reading.measurable and (
            now - share.answered_at > stale_after_seconds(self._rules.interval_seconds)
        ):
            return replace(share_reading, measurable=False)
        return share_reading

    def _integrate_share(
        self,
        share: _ShareState,
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
        )
        activity = self._within_gap(share_reading.activity)
        utilization = (
            reading.vitals.utilization if elapsed and share_reading.gpu_instance is None else None
        )
        if not share_reading.measurable or activity is not None:
            share.integral.add(
                utilization, activity, derived, energy_joules, reading.timestamp_seconds
            )
        elif utilization is not None:
            share.integral.add(
                utilization, None, Derived(), energy_joules, reading.timestamp_seconds
            )
        if share_reading.measurable and share_reading.activity is None:
            # The counters skipped a round: what was measured last stands for up to 3 intervals.
            share.derived = replace(share.derived, held=derived.held, holder=derived.holder)
            return
        share.derived = derived
        share.activity = share_reading.activity

    def _forget(self, now: float) -> None:
        for uuid in [
            uuid
            for uuid, state in self._gpus.items()
            if now - state.seen_at > self._rules.forget_after_seconds
        ]:
            log.info("forgetting GPU %s: not seen for too long", uuid)
            del self._gpus[uuid]
            self._forgotten.add(uuid)

    # From state to the snapshot.

    def _picture(self, state: _GpuState, now: float, xids: Mapping[int, XidRecord]) -> Gpu:
        reading = state.reading
        problem = state.problem
        stale = problem is None and (
            reading is None or now - reading.monotonic_seconds >= self._stale_after
        )
        if stale:
            problem = "no fresh reading"
        if stale != state.stale:
            state.stale = stale
            # Whoever reads the GPU finds and logs what is wrong with it.
            what = "no fresh reading" if stale else "no longer without a fresh reading"
            log.debug("GPU %d (%s): %s", state.device.index, state.device.uuid, what)
        if reading is None or problem is not None:
            return Gpu(
                device=state.device,
                up=False,
                down_reason=problem,
                last_read_timestamp_seconds=reading.timestamp_seconds if reading else None,
                ceilings=state.ceilings,
                xids=xids,
                states={"gpu": "suspended"} if problem == SUSPENDED else {},
            )
        return Gpu(
            device=state.device,
            up=True,
            last_read_timestamp_seconds=reading.timestamp_seconds,
            ceilings=state.ceilings,
            vitals=reading.vitals,
            board=reading.board,
            health=reading.health,
            xids=xids,
            totals=state.board.totals(),
            shares=tuple(
                _share_picture(share_reading, state.shares[share_reading.gpu_instance], reading)
                for share_reading in self._shares(reading)
            ),
            states=reading.states,
        )

    def _source_states(
        self, reports: Sequence[SlotReport], gpus: Sequence[Gpu]
    ) -> Mapping[str, SourceState]:
        name = self._readers.name
        failures: dict[str, int] = {name: self._readers.failed_initialisations}
        seconds: dict[str, float] = {}
        for report in reports:
            for source, count in report.failures.items():
                failures[source] = failures.get(source, 0) + count
            if report.reading is not None:
                for source, length in report.reading.read_seconds.items():
                    seconds[source] = max(length, seconds.get(source, 0.0))
        shares = [share for state in self._gpus.values() for share in state.shares.values()]
        failures["gpm"] = failures.get("gpm", 0) + sum(share.integral.cuts for share in shares)
        states = {
            name: SourceState(
                up=any(gpu.up for gpu in gpus),
                read_seconds=seconds.get(name),
                failures_total=failures[name],
            )
        }
        if any(
            share.measurable
            for report in reports
            if report.reading is not None
            for share in report.reading.shares
        ):
            states["gpm"] = SourceState(
                up=any(
                    share.activity is not None and share.activity.source == "gpm"
                    for gpu in gpus
                    for share in gpu.shares
                ),
                read_seconds=seconds.get("gpm"),
                failures_total=failures["gpm"],
            )
        return states

    def _problem(self, gpus: Sequence[Gpu], reports: Sequence[SlotReport]) -> str | None:
        if any(gpu.up for gpu in gpus):
            return None
        if self._readers.problem is not None:
            return self._readers.problem
        down = {report.index: report.problem for report in reports if report.problem}
        down |= {gpu.device.index: gpu.down_reason or "no answer" for gpu in gpus}
        if not down:
            return "the driver has not answered yet"
        return "no GPU is up: " + "; ".join(
            f"GPU {index}: {down[index]}" for index in sorted(down)[:4]
        )


def _share_picture(share_reading: ShareReading, share: _ShareState, reading: Reading) -> Share:
    derived = share.derived
    return Share(
        gpu_instance=share_reading.gpu_instance,
        ceilings=share.ceilings,
        totals=share.integral.totals(),
        utilization=reading.vitals.utilization if share_reading.gpu_instance is None else None,
        memory=share_reading.memory,
        processes=share_reading.processes,
        held=derived.held,
        holder=derived.holder,
        activity=share.activity,
        saturation=derived.saturation,
        time_parts=derived.time_parts,
        roofline=derived.roofline,
        limiter=derived.limiter,
    )
