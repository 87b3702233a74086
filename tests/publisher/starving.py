# SPDX-License-Identifier: Apache-2.0
"""A job that waits for its data and computes, on a GPU that is read all the while.

The job is the real client in a loop of its own, the daemon's side is the real ledger and publisher,
and one clock by hand is theirs. The truth is added up beside them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from types import TracebackType

import pytest

from exporter.model.reading import Process, Utilization
from exporter.model.snapshot import Rank, Share, Snapshot
from exporter.publisher import Publisher, Rules
from exporter.sources.training.credentials import Peer, Processes
from exporter.sources.training.decode import decode
from exporter.sources.training.ledger import Ledger
from exporter.sources.training.receiver import Arrival
from roofline_job import identity, process, reporter, watch
from roofline_job.cuda_idle import IdleMeter
from roofline_job.process import PROCESS
from roofline_job.thread_accounts import ThreadAccount
from tests.clocks import ManualClock
from tests.publisher.test_tick import BUSY, H100, SPECS, Script, gpu
from tests.publisher.test_training import Jobs

PID = 4242
WORKING = dataclasses.replace(BUSY, engine=1.0)


class Living(Processes):
    """Knows the job's process while it lives."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = True

    def may_claim(self, pid: int, claimed: int) -> bool:
        return True

    def started(self, pid: int) -> int | None:
        return 77 if self.alive else None

    def age_seconds(self, started: int | None) -> float:
        return 1e6

    def ancestors(self, pid: int) -> tuple[int, ...]:
        return ()


class LateMeter(IdleMeter):
    """CUDA events that the GPU passes only after the report which follows them."""

    __slots__ = ("waiting_ns",)

    def __init__(self) -> None:
        super().__init__()
        self.measuring = True
        self.waiting_ns = 0

    def collect(self) -> None:
        """Count what was stalled before the last report."""
        self.idle_ns["data"] += self.waiting_ns
        self.waiting_ns = 0


class Starving:
    """A node with one GPU and one job on it."""

    def __init__(
        self, poll_seconds: float = 1.0, *, measured: bool = False, counters: bool = True
    ) -> None:
        self.clock = ManualClock()
        self.script = Script(self.clock)
        self.processes = Living()
        self.ledger = Ledger(self.clock, self.processes, 64, 512)
        self.jobs = Jobs()
        self.publisher = Publisher(
            self.script,
            SPECS,
            Rules(interval_seconds=poll_seconds),
            self.clock,
            training=[self.jobs],
        )
        self.stalled = self.waited = self.idled = 0.0
        """The truth, in seconds; stalled is both waited and idle."""
        self.seen: list[Snapshot] = []
        self._poll_seconds = poll_seconds
        self._counters = counters
        self._meter = LateMeter() if measured else None
        self._idle_in_interval = 0.0
        self._due = self.clock.monotonic()
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Starving:
        patch = self._patch
        patch.setattr(process, "ThreadAccount", self._account)
        patch.setattr(reporter, "deliver", self._deliver)
        patch.setattr(identity, "device", lambda batches: H100.uuid)
        PROCESS.reset()
        self._tick()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        PROCESS.reset()
        self._patch.undo()

    def _account(self, job: str, rank: int | None, instrumentation: str) -> ThreadAccount:
        account = ThreadAccount(
            job, rank, instrumentation, lambda: round(self.clock.monotonic() * 1e9)
        )
        if self._meter is not None:
            account.meter = self._meter
        return account

    def _deliver(self, datagram: bytes, _: float) -> bool:
        now = self.clock
        self.ledger.take(
            decode(datagram), Arrival(b"", Peer(PID, 1000), now.monotonic(), now.time())
        )
        if self._meter is not None:
            self._meter.waiting_ns = self._stalled_ns() - self._meter.idle_ns["data"]
        return True

    def _stalled_ns(self) -> int:
        return round(self.stalled * 1e9)

    def train(self, cycles: Iterable[tuple[float, float]], **busy: float) -> None:
        """Wait and compute, so many seconds each; see `computes` for the GPU meanwhile."""
        computing: list[float] = []

        def batches() -> Iterator[int]:
            for wait, compute in cycles:
                computing.append(compute)
                self.waits(wait, busy.get("while_waiting", 0.0))
                yield 0

        for _ in watch(batches(), job="resnet"):
            self.computes(computing[-1], busy.get("while_computing", 1.0))

    def waits(self, seconds: float, busy: float = 0.0) -> None:
        """Let the job wait, while the GPU is busy for the first part of that time."""
        self._pass(busy * seconds, idle=False)
        self._pass((1.0 - busy) * seconds, idle=True)
        self.waited += seconds
        self.stalled += (1.0 - busy) * seconds

    def computes(self, seconds: float, busy: float = 1.0) -> None:
        """Let the job compute, while the GPU is busy for the first part of that time."""
        self._pass(busy * seconds, idle=False)
        self._pass((1.0 - busy) * seconds, idle=True)

    def ends(self) -> None:
        """Let the job end, and the node be read once more."""
        PROCESS.flush()
        self._pass(2 * self._poll_seconds, idle=False)

    def _pass(self, seconds: float, *, idle: bool) -> None:
        while seconds > 0.0:
            passed = min(seconds, max(self._due - self.clock.monotonic(), 0.0))
            self.clock.advance(passed)
            seconds -= passed
            if idle:
                self._idle_in_interval += passed
                self.idled += passed
            if self.clock.monotonic() >= self._due - 1e-9:
                self._tick()

    def _tick(self) -> None:
        length = self._poll_seconds
        busy = 1.0 - min(self._idle_in_interval / length, 1.0)
        self._idle_in_interval = 0.0
        self._due = self.clock.monotonic() + length
        at_work = {
            name: busy * (getattr(WORKING, name) or 0.0)
            for name in ("engine", "sm", "occupancy", "dram", "tensor", "fp32", "integer")
        }
        activity = dataclasses.replace(WORKING, seconds=length, **at_work)  # type: ignore[arg-type]
        self.script.read(
            H100,
            activity=activity if self._counters else None,
            utilization=Utilization(busy, busy, length),
            processes=(Process(PID, "compute"),),
        )
        self.jobs.sent = self.ledger.reports()
        self.seen.append(self.publisher.tick())

    @property
    def share(self) -> Share:
        """The GPU as it was shown last."""
        return gpu(self.seen[-1]).shares[0]

    @property
    def rank(self) -> Rank:
        """The job's rank as it was shown last."""
        (rank,) = self.seen[-1].ranks
        return rank

    @property
    def lower(self) -> float:
        """The lower total of the inferred stall, in seconds."""
        return self.share.totals.data_stall_lower_seconds.get("client", 0.0)

    @property
    def upper(self) -> float:
        """The upper one."""
        return self.share.totals.data_stall_upper_seconds.get("client", 0.0)

    @property
    def limited(self) -> dict[str, float]:
        """The seconds of each limiter."""
        return dict(self.share.totals.limited_seconds)
