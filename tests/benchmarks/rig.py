# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks run on: a scripted node, a fast clock, and the daemon's own tick."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from exporter.clock import Clock, stale_after_seconds
from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.model.snapshot import Snapshot
from exporter.publisher import Publisher, Rules
from exporter.sources.fleet.fleet import Fleet
from exporter.sources.fleet.session import SessionOptions
from exporter.sources.nvml.library import Library
from exporter.specs import load_specs
from exporter.web.store import Store
from tests.clocks import ManualClock
from tests.e2e.daemons import Daemon
from tests.fake_nvml import FakeNvml, sine, square

EPOCH = 1_800_000_000.0
FIRST_SNAPSHOT_SECONDS = 30.0
GIB = 2**30
CACHED = {"PYTHONDONTWRITEBYTECODE": ""}
"""Processes start from cached bytecode, as installed programs do."""


def busy_node(
    gpus: int, *, latency_us: float = 0, pids: Sequence[int] = (), preset: str = "h100-sxm"
) -> dict[str, Any]:
    """Return a scenario in which nearly every reading of every GPU changes all the time.

    GPU i has one compute process, `pids[i]`, if there is one. Each GPU has its own phase, so hardly
    a line of a page can be reused from the page before.
    """
    return {
        "latency_us": latency_us,
        "devices": [_gpu(preset, index, pids[index : index + 1]) for index in range(gpus)],
    }


def _gpu(preset: str, index: int, pids: Sequence[int]) -> dict[str, Any]:
    def around(mean: float, amplitude: float, period: float = 37.0) -> dict[str, Any]:
        return sine(period + index, mean, amplitude, phase=index * 1.7)

    return {
        "product": preset,
        "utilization": square(period=11 + index, duty=0.8, high=100, low=3),
        "memory_utilization": around(40, 20),
        "encoder_utilization": around(10, 5),
        "decoder_utilization": around(10, 5),
        "power": around(500, 150),
        "temperature": {"gpu": around(60, 10), "memory": around(70, 10)},
        "memory": {"used": around(40 * GIB, 8 * GIB)},
        # Constant: GPM multiplies activities by it, and the simulation integrates the product of
        # two sines numerically, which would cost more than the exporter does.
        "clocks": {"sm": 1700 + 10 * index, "graphics": around(1700, 200)},
        "throttle": {"power": around(0.1, 0.05)},
        "pcie": {"tx": around(3e9, 1e9), "rx": around(5e9, 1e9)},
        "nvlink": {"tx": around(1e11, 5e10), "rx": around(1e11, 5e10)},
        "gpm": gpm(around),
        "processes": [{"pid": pid, "bytes": 30 * GIB} for pid in pids],
    }


def gpm(around: Callable[[float, float], dict[str, Any]]) -> dict[str, Any]:
    """Return activities in percent that swing around a mean by an amplitude."""
    return {
        "graphics": around(90, 8),
        "sm": around(70, 20),
        "occupancy": around(40, 10),
        "int": around(20, 10),
        "tensor": around(45, 20),
        "hmma": around(40, 20),
        "dram": around(50, 20),
        "fp64": around(2, 1),
        "fp32": around(10, 5),
        "fp16": around(5, 2),
    }


class Stopwatch:
    """CPU seconds of this process, all threads, by named part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the CPU time of a context for `name`."""
        started = time.process_time()
        yield
        spent = time.process_time() - started
        self.seconds[name] = self.seconds.get(name, 0.0) + spent


class _TimedFleet(Fleet):
    """A fleet that notes the CPU time of its rounds."""

    watch: Stopwatch

    def round(self, wait_seconds: float) -> None:
        """Ask for a round of readings and wait for it."""
        with self.watch.part("read"):
            super().round(wait_seconds)


class Accelerated:
    """The daemon's fleet, publisher, store and pages, ticked by hand as fast as they go.

    The driver is simulated and so is the time; threads and everything else are the daemon's own.
    A scraper that wants gzipped OpenMetrics is there at every tick.
    """

    def __init__(self, fake: FakeNvml, gpus: int, interval_seconds: float = 1.0) -> None:
        self._fake = fake
        self._gpus = gpus
        self._interval = interval_seconds
        self._clock = ManualClock(fake.now())
        clock: Clock = self._clock
        self.watch = Stopwatch()
        self.pages = Pages(RenderOptions(revision="benchmark"))
        self._fleet = _TimedFleet(
            Library(str(fake.library)),
            SessionOptions(),
            clock,
            stale_after_seconds(interval_seconds),
        )
        self._fleet.watch = self.watch
        self._publisher = Publisher(
            self._fleet,
            load_specs(),
            Rules(interval_seconds=interval_seconds),
            clock,
            (Store(clock.monotonic).publish, self._render),
        )
        self.snapshot: Snapshot | None = None

    def _render(self, snapshot: Snapshot) -> None:
        with self.watch.part("render"):
            self.pages.publish(snapshot)

    def start(self) -> None:
        """Tick until all GPUs are up, and ask for the page for the first time."""
        self._fleet.start()
        deadline = time.monotonic() + FIRST_SNAPSHOT_SECONDS
        while self.snapshot is None or sum(gpu.up for gpu in self.snapshot.gpus) < self._gpus:
            if time.monotonic() > deadline:
                message = f"the GPUs are not up: {self.snapshot}"
                raise RuntimeError(message)
            self.tick()
            threading.Event().wait(0.02)
        self.page()

    def tick(self) -> None:
        """Move all clocks by one interval and tick once; a scrape follows."""
        self._clock.advance(self._interval)
        self._fake.set_clock(self._clock.time())
        with self.watch.part("tick"):
            self.snapshot = self._publisher.tick()
        self.pages.page("openmetrics-1.0.0", True)

    def page(self) -> bytes:
        """Return the gzipped OpenMetrics page.

        Raises:
            RuntimeError: a GPU is missing, so that the cost of the tick means nothing.
        """
        up = 0 if self.snapshot is None else sum(gpu.up for gpu in self.snapshot.gpus)
        if up != self._gpus:
            message = f"{up} of {self._gpus} GPUs are up"
            raise RuntimeError(message)
        return self.pages.page("openmetrics-1.0.0", True)

    def stop(self) -> None:
        """End the threads."""
        self._fleet.stop()


def fake_in_this_process(directory: Path, scenario: dict[str, Any]) -> FakeNvml:
    """Return a simulated driver on a frozen clock that this process will load."""
    fake = FakeNvml(directory, scenario, clock=EPOCH)
    os.environ.update(fake.environment())
    ctypes.CDLL(str(fake.library)).fake_nvml_reset()
    return fake


@contextmanager
def daemon(gpus: int, folder: Path) -> Iterator[Daemon]:
    """Yield a daemon on a simulated driver, once its GPUs are up."""
    fake = FakeNvml(folder / "driver", busy_node(gpus))
    found = Daemon(folder / "daemon", {**CACHED, **fake.environment()}, ())
    try:
        found.wait_for_gpus(gpus)
        yield found
    finally:
        found.kill()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far, all its threads, in the kernel too."""
    return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3) numbers that clock


def print_missed(problems: Sequence[str], *, check: bool) -> int:
    """Print the targets that were missed; return the exit code."""
    for problem in problems:
        print(f"MISSED: {problem}", file=sys.stderr if check else sys.stdout)
    return int(check and bool(problems))


def series(page: str) -> int:
    """Return how many samples a page holds."""
    return sum(1 for line in page.splitlines() if line and not line.startswith("#"))


def rss_mb(pid: int | str = "self") -> float:
    """Return the resident set of a process, in MB of 10^6 bytes."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
    message = f"/proc/{pid}/status has no VmRSS"
    raise RuntimeError(message)


def machine() -> str:
    """Return the machine that the figures belong to, in one line."""
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        for line in cpuinfo:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return (
        f"{os.cpu_count()} cores, {model}, Linux {platform.release()}, "
        f"Python {platform.python_version()}; the driver is simulated"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns, numbers to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        aligned: list[str] = [cells[0].ljust(widths[0])]
        aligned += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return f"| {' | '.join(aligned)} |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(head), f"| {' | '.join(rule)} |", *map(line, rows)])
