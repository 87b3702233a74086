# SPDX-License-Identifier: Apache-2.0
"""A counter source whose child is a real process, supervised step by step on a clock of its own."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from exporter.clock import Clock
from exporter.model.reading import Activity, Device
from exporter.sources.counters.child_counters import ChildCounters
from exporter.sources.interface import CounterSource, OpenedGpu
from exporter.sources.reading_state import Journal
from tests.clocks import ManualClock
from tests.waiting import PATIENCE_SECONDS

UUID = "GPU-a"
SOURCE = "dcgm"
STEP_SECONDS = 0.02


def command(name: str) -> tuple[str, ...]:
    """Of a program in programs.py."""
    return sys.executable, "-m", "tests.sources.counters.programs", name


class Gpu:
    """One GPU that is open."""

    def __init__(
        self, counters: ChildCounters, clock: Clock, uuid: str, shares: Sequence[int | None]
    ) -> None:
        self.uuid = uuid
        self._clock = clock
        self.measured_better = False
        self.journal = Journal("GPU 0")
        self.journal.now = clock.monotonic()
        device = Device(index=0, uuid=uuid, name="x", pci_bus_id="00000000:01:00.0")
        opened = OpenedGpu(
            None, device, tuple(shares), self.journal, better=lambda: self.measured_better
        )
        self.source: CounterSource = counters.open(opened)

    def read(self) -> Mapping[int | None, Activity]:
        self.journal.now = self._clock.monotonic()
        return self.source.read(self.journal.now)


class Bench:
    """A source whose steps the test takes, without its thread."""

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any] | None = None,
        *,
        patience_seconds: float = 0.0,
        program: Sequence[str] | None = None,
        source: str = SOURCE,
    ) -> None:
        self.clock = ManualClock()
        self.counters = ChildCounters(
            source,
            options or {},
            self.clock,
            command=program or command(name),
            patience_seconds=patience_seconds,
        )
        self.supervisor = self.counters.supervisor
        self.gpus: list[Gpu] = []

    def open(self, uuid: str = UUID, shares: Sequence[int | None] = (None,)) -> Gpu:
        self.gpus.append(Gpu(self.counters, self.clock, uuid, shares))
        return self.gpus[-1]

    def close(self) -> None:
        self.supervisor.end()

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.supervisor.step(STEP_SECONDS)

    def later(self, seconds: float, steps: int = 1) -> None:
        """Let time pass without a reading, then take steps."""
        self.clock.advance(seconds)
        self.step(steps)

    def step_until(self, condition: Callable[[], object], what: str = "") -> None:
        """Take steps until something is true; the clock stands still."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"never: {what or condition}"
            self.step()

    def advance(self, seconds: float) -> None:
        """Let time pass, a round of readings each second, in each of which the child is heard."""
        while seconds > 0:
            self.clock.advance(min(seconds, 1.0))
            seconds -= 1.0
            for gpu in self.gpus:
                gpu.read()
            self.step()
            self.step_until(lambda: self.supervisor.heard in (None, self.clock.monotonic()))

    def run(self) -> None:
        """Have the child started that an open GPU wants."""
        for gpu in self.gpus:
            gpu.read()
        self.step_until(lambda: self.supervisor.is_up, "the child says something")

    @property
    def failures(self) -> int:
        state = self.counters.state
        assert state is not None
        return state.failures_total

    @property
    def is_up(self) -> bool:
        return self.counters.state is not None and self.counters.state.up


def is_alive(pid: int | None) -> bool:
    """Whether a process runs; one that is dead and not yet waited for does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def opened() -> set[str]:
    """What this process has open, each by its number in the kernel (``pipe:[4711]``)."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            found.add(os.readlink(f"/proc/self/fd/{number}"))
    return found
