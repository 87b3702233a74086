# SPDX-License-Identifier: Apache-2.0
"""The one clock: each tick reads, merges, integrates, derives and publishes one snapshot."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from exporter.clock import Clock, next_due_seconds
from exporter.derive.diagnosis import diagnosed
from exporter.derive.topology import peers
from exporter.model.readers import (
    CollectiveSource,
    HostSource,
    Readers,
    TrainingReports,
    WorkloadSource,
)
from exporter.model.reading import SUSPENDED, Device, Place, SlotReport
from exporter.model.snapshot import Gpu, Peer, Snapshot
from exporter.model.training import TrainingReport
from exporter.publisher.gpu import TrackedGpu
from exporter.publisher.outside import Outside
from exporter.publisher.ranks import INFERRED_BY_CLIENT, Claims, Ranks
from exporter.publisher.redact import WithoutSerials, without_owners
from exporter.publisher.rules import Rules
from exporter.publisher.share import NodeCounts
from exporter.publisher.sources import problem_of, source_states, training_state
from exporter.publisher.workloads import NodeWork
from exporter.specs import SpecBook

log = logging.getLogger(__name__)


class Publisher:
    """Ticks every interval and hands one immutable snapshot to every subscriber."""

    def __init__(
        self,
        readers: Readers,
        specs: SpecBook,
        rules: Rules,
        clock: Clock,
        subscribers: Iterable[Callable[[Snapshot], None]] = (),
        *,
        training: Sequence[TrainingReports] = (),
        workloads: Sequence[WorkloadSource] = (),
        collectives: CollectiveSource | None = None,
        host: HostSource | None = None,
        pace: float = 1.0,
    ) -> None:
        """`clock` runs `pace` times as fast as real time."""
        self._readers = readers
        self._specs = specs
        self._rules = rules
        self._clock = clock
        self._subscribers = tuple(subscribers)
        self._pace = pace
        self._training = tuple(training)
        self._work = NodeWork(workloads)
        self._collectives = collectives
        beside = (*workloads, collectives, host)
        self._beside = [each for each in beside if each is not None]
        self.outside = Outside(host)
        self._gpus: dict[str, TrackedGpu] = {}
        self._linked: list[Device] = []
        """What `_peers` were found for."""
        self._peers: dict[str, tuple[Peer, ...]] = {}
        self._counts = NodeCounts()
        self._ranks = Ranks(self._counts.disbelieved)
        self._without_serials = WithoutSerials()
        self._forgotten: set[str] = set()
        """GPUs not read for --gpu.forget-after, which readers may still report."""
        self._reconfiguration: tuple[SpecBook, Rules] | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        """Start ticking."""
        self._thread.start()

    def stop(self, wait_seconds: float = 1.0) -> None:
        """Stop ticking; wait up to `wait_seconds` for the tick in progress."""
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
            now = self._clock.monotonic()
            due = next_due_seconds(due, self._rules.interval_seconds, now)
            self._stopped.wait((due - now) / self._pace)

    def tick(self) -> Snapshot:
        """Read, integrate, derive and publish once; return the snapshot."""
        self._take_reconfiguration()
        self._readers.round(self._rules.interval_seconds / 2)
        now = self._clock.monotonic()
        reports = self._slot_reports()
        self._work.take(reports, owners=self._rules.owners)
        shares = [gpu.last_shares for gpu in self._gpus.values()]
        self._ranks.take(self._training_reports(), shares, now)
        claims = self.outside.claims(self._ranks.claims)
        for report in _once_each(reports):
            self._take(report, claims, now)
        self._settle()
        self.outside.settle(self._gpus, self._ranks.claims, self._rules.idle, now)
        self._forget(now)
        timestamp, gpus, ranks = self._clock.time(), self._pictures(now), self._ranks.pictures(now)
        snapshot = Snapshot(
            timestamp_seconds=timestamp,
            gpus=diagnosed(gpus, ranks, timestamp),
            sources=source_states(
                self._readers,
                reports,
                gpus,
                self._counts.cuts,
                self._training,
                self._beside,
            ),
            devices=self._readers.devices(),
            problem=problem_of(self._readers, reports, gpus),
            ranks=ranks,
            training=training_state(self._training, self._counts.disbelieved),
            collectives=None if self._collectives is None else self._collectives.collectives(),
            pod_labels=self._work.pod_labels,
        )
        for subscriber in self._subscribers:
            subscriber(snapshot)
        return snapshot

    def _take_reconfiguration(self) -> None:
        if self._reconfiguration is not None:
            (self._specs, self._rules), self._reconfiguration = self._reconfiguration, None
            for gpu in self._gpus.values():
                gpu.reconfigure(self._specs, self._rules)

    def _slot_reports(self) -> Sequence[SlotReport]:
        reports = self._readers.reports()
        if not self._rules.owners:
            reports = [without_owners(report) for report in reports]
        if not self._rules.serials:
            reports = [self._without_serials.report(report) for report in reports]
        return reports

    def _training_reports(self) -> Sequence[TrainingReport]:
        """Return the last report of every training process, redacted as configured."""
        reports = [report for source in self._training for report in source.reports()]
        if self._rules.owners:
            return reports
        return [each if each.owner is None else replace(each, owner=None) for each in reports]

    def _take(self, report: SlotReport, claims: Claims, now: float) -> None:
        """Pass a report to its GPU, unless that was forgotten and is still not read."""
        reading = report.reading
        device = reading.device if reading is not None else report.device
        if device is None:
            return
        if reading is not None or report.problem == SUSPENDED:
            self._forgotten.discard(device.uuid)
        elif device.uuid in self._forgotten:
            return
        if device.uuid not in self._gpus:
            gpu = TrackedGpu(device, self._specs, self._rules, now, self._counts)
            self._gpus[device.uuid] = gpu
        self._gpus[device.uuid].take(report, claims, self._work, now)

    def _settle(self) -> None:
        """Check the ranks' stalls against the idle time of the shares; add the inferred ones."""
        shares = {
            Place(uuid, gpu_instance): share
            for uuid, gpu in self._gpus.items()
            for gpu_instance, share in gpu.shares.items()
        }
        gaps = {place: share.gaps for place, share in shares.items()}
        for place, seconds in self._ranks.settle(gaps).items():
            if place in shares:
                shares[place].add_stall(INFERRED_BY_CLIENT, seconds)

    def _forget(self, now: float) -> None:
        for uuid, gpu in list(self._gpus.items()):
            if now - gpu.seen_at > self._rules.forget_after_seconds:
                log.info("forgetting GPU %s: not seen for too long", uuid)
                del self._gpus[uuid]
                self._forgotten.add(uuid)

    def _pictures(self, now: float) -> tuple[Gpu, ...]:
        xids = self._readers.xids()
        tracked = sorted(self._gpus.values(), key=lambda gpu: gpu.device.index)
        devices = [gpu.device for gpu in tracked]
        if devices != self._linked:
            self._linked, self._peers = devices, peers(devices)
        return tuple(
            gpu.picture(now, xids.get(uuid, {}), self._peers.get(uuid, ()))
            for gpu in tracked
            for uuid in (gpu.device.uuid,)
        )


def _once_each(reports: Sequence[SlotReport]) -> Iterable[SlotReport]:
    """Return one report per GPU: the one with the newest reading."""
    newest: dict[str | int, SlotReport] = {}
    for report in reports:
        device = report.device if report.reading is None else report.reading.device
        key = report.index if device is None else device.uuid
        newest[key] = max(newest.get(key, report), report, key=_read_at)
    return newest.values()


def _read_at(report: SlotReport) -> float:
    return float("-inf") if report.reading is None else report.reading.monotonic_seconds
