# SPDX-License-Identifier: Apache-2.0
"""The one clock: each tick reads, merges, integrates, derives and publishes one snapshot."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from exporter.clock import Clock
from exporter.model.readers import Readers, TrainingReports
from exporter.model.reading import SUSPENDED, SlotReport
from exporter.model.snapshot import Gpu, Snapshot, SourceState, TrainingState
from exporter.publisher.gpu import Rules, TrackedGpu
from exporter.publisher.ranks import GapClock, Ranks
from exporter.specs import SpecBook

STALL_EXCEEDS_IDLE = "stall_exceeds_idle"

log = logging.getLogger(__name__)


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
        training: Sequence[TrainingReports] = (),
        pace: float = 1.0,
    ) -> None:
        """Wire the parts; `clock` runs `pace` times as fast as the time that waiting takes."""
        self._readers = readers
        self._specs = specs
        self._rules = rules
        self._clock = clock
        self._subscribers = tuple(subscribers)
        self._pace = pace
        self._training = tuple(training)
        self._gpus: dict[str, TrackedGpu] = {}
        self._ranks = Ranks()
        self._forgotten: set[str] = set()
        """GPUs that readers may still name but that were not seen for too long."""
        self._forgotten_cuts: Counter[str] = Counter()
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
            for gpu in self._gpus.values():
                gpu.reconfigure(self._specs, self._rules)
        self._readers.round(self._rules.interval_seconds / 2)
        now = self._clock.monotonic()
        reports = self._readers.reports()
        known = [gpu.known for gpu in self._gpus.values()]
        said = [report for source in self._training for report in source.reports()]
        self._ranks.take(said, known, now, owners=self._rules.owners)
        for report in _once_each(reports):
            self._take(report, now)
        self._ranks.settle(self._gaps)
        self._forget(now)
        xids = self._readers.xids()
        gpus = tuple(
            gpu.picture(now, xids.get(gpu.device.uuid, {}))
            for gpu in sorted(self._gpus.values(), key=lambda gpu: gpu.device.index)
        )
        snapshot = Snapshot(
            timestamp_seconds=self._clock.time(),
            gpus=gpus,
            sources=self._source_states(reports, gpus),
            devices=self._readers.devices(),
            problem=self._problem(gpus, reports),
            ranks=self._ranks.pictures(now, owners=self._rules.owners),
            training=self._training_state(),
        )
        for subscriber in self._subscribers:
            subscriber(snapshot)
        return snapshot

    def _training_state(self) -> TrainingState | None:
        if not self._training:
            return None
        rejected = self._rejected()
        rejected[STALL_EXCEEDS_IDLE] = self._ranks.stall_exceeds_idle
        return TrainingState(sum(source.received_total for source in self._training), rejected)

    def _rejected(self) -> dict[str, int]:
        """Return how many training reports were refused, by reason."""
        rejected: dict[str, int] = {}
        for source in self._training:
            for reason, count in source.rejected_total.items():
                rejected[reason] = rejected.get(reason, 0) + count
        return rejected

    def _gaps(self, uuid: str, gpu_instance: int | None) -> GapClock | None:
        gpu = self._gpus.get(uuid)
        share = None if gpu is None else gpu.shares.get(gpu_instance)
        return None if share is None else share.gaps

    def _take(self, report: SlotReport, now: float) -> None:
        reading = report.reading
        device = reading.device if reading is not None else report.device
        if device is None:
            return
        if reading is not None or report.problem == SUSPENDED:
            self._forgotten.discard(device.uuid)
        elif device.uuid in self._forgotten:
            return
        gpu = self._gpus.get(device.uuid)
        if gpu is None:
            gpu = TrackedGpu(device, self._specs, self._rules, self._ranks, now)
            self._gpus[device.uuid] = gpu
        gpu.take(report, now)

    def _forget(self, now: float) -> None:
        for uuid in [
            uuid
            for uuid, gpu in self._gpus.items()
            if now - gpu.seen_at > self._rules.forget_after_seconds
        ]:
            log.info("forgetting GPU %s: not seen for too long", uuid)
            self._forgotten_cuts.update(self._gpus.pop(uuid).cuts)
            self._forgotten.add(uuid)

    def _source_states(
        self, reports: Sequence[SlotReport], gpus: Sequence[Gpu]
    ) -> Mapping[str, SourceState]:
        """Return the state of the readers' own source, of every counter source, and of training."""
        own = self._readers.name
        failures = self._cuts()
        failures[own] += self._readers.failed_initialisations
        seconds: dict[str, float] = {}
        expected: set[str] = set()
        for report in reports:
            failures.update(report.failures)
            if report.reading is not None:
                for source, length in report.reading.read_seconds.items():
                    seconds[source] = max(length, seconds.get(source, 0.0))
                expected.update(share.counters for share in report.reading.shares if share.counters)
        answering = {
            share.activity.source for gpu in gpus for share in gpu.shares if share.activity
        }
        up = {own: any(gpu.up for gpu in gpus)}
        up |= {source: source in answering for source in sorted(expected)}
        states = {
            source: SourceState(is_up, seconds.get(source), failures[source])
            for source, is_up in up.items()
        }
        if self._training:
            states["training"] = SourceState(
                up=any(source.up for source in self._training),
                failures_total=sum(self._rejected().values()),
            )
        return states

    def _cuts(self) -> Counter[str]:
        """Return how many activities had to be cut to 1, by source; they count as its failures."""
        cuts = Counter(self._forgotten_cuts)
        for gpu in self._gpus.values():
            cuts.update(gpu.cuts)
        return cuts

    def _problem(self, gpus: Sequence[Gpu], reports: Sequence[SlotReport]) -> str | None:
        if any(gpu.up for gpu in gpus):
            return None
        if self._readers.problem is not None:
            return self._readers.problem
        down = {
            report.index if report.device is None else report.device.index: report.problem
            for report in reports
            if report.problem
        }
        down |= {gpu.device.index: gpu.down_reason or "no answer" for gpu in gpus}
        if not down:
            return "the driver has not answered yet"
        return "no GPU is up: " + "; ".join(
            f"GPU {index}: {down[index]}" for index in sorted(down)[:4]
        )


def _once_each(reports: Sequence[SlotReport]) -> list[SlotReport]:
    """Return one report of each GPU, whoever read it how often: the one with the newest reading."""
    newest: dict[str | int, SlotReport] = {}
    for report in reports:
        device = report.device if report.reading is None else report.reading.device
        key = report.index if device is None else device.uuid
        known = newest.get(key)
        if known is None or _read_at(report) > _read_at(known):
            newest[key] = report
    return list(newest.values())


def _read_at(report: SlotReport) -> float:
    return float("-inf") if report.reading is None else report.reading.monotonic_seconds
