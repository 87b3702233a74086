# SPDX-License-Identifier: Apache-2.0
"""What does sampling with CUPTI cost the CPU, in the child that samples and in the exporter?

The libraries are fakes, which cost next to nothing: what is shown is ours alone. Beside it stands a
Python process that does nothing but wake up once a second.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from exporter.clock import SystemClock
from exporter.model.reading import Device
from exporter.sources.counters.child_counters import ChildCounters
from exporter.sources.interface import CUPTI, CounterSource, OpenedGpu
from exporter.sources.reading_state import Journal
from tests.benchmarks.rig import cpu_seconds, machine, rss_mb, table
from tests.fake_cupti import FakeCupti, uuid_of

SETTLE_SECONDS = 20.0
"""So long the first second of readings may take."""
IDLE = "import time\nwhile True: time.sleep(1)"


def main(argv: Sequence[str] | None = None) -> int:
    """Sample for some seconds and print one line for each process."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cupti", description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args(argv)
    print(f"{machine()}\n{options.gpus} GPUs at 100 Hz, {options.seconds} s\n", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        fake = FakeCupti(Path(directory), ("AD102",) * options.gpus)
        os.environ.update(fake.environment)
        rows, readings = measured(fake, options.gpus, options.seconds)
    print(table(["process", "% of a core", "RSS MB"], rows))
    print(f"\n{readings} readings arrived, of {options.gpus * options.seconds} seconds.")
    return 0


def measured(fake: FakeCupti, gpus: int, seconds: int) -> tuple[list[list[str]], int]:
    """Return a row for each process, and how many activities arrived."""
    clock = SystemClock()
    counters = ChildCounters(CUPTI, {"library": str(fake.cupti())}, clock, patience_seconds=0.0)
    opened = [opened_gpu(index, clock) for index in range(gpus)]
    idle = subprocess.Popen([sys.executable, "-c", IDLE])
    try:
        alone = exporter_seconds(opened, [], clock, seconds)[0]
        counters.start()
        sources = [counters.open(gpu) for gpu in opened]
        deadline = clock.monotonic() + SETTLE_SECONDS
        while exporter_seconds(opened, sources, clock, 1)[1] < gpus:
            if clock.monotonic() > deadline:
                raise RuntimeError("nothing is sampled")
        child = counters.supervisor.pid
        assert child is not None
        before = cpu_seconds(child), cpu_seconds(idle.pid)
        began = time.monotonic()
        own, readings = exporter_seconds(opened, sources, clock, seconds)
        elapsed = time.monotonic() - began
        after = cpu_seconds(child), cpu_seconds(idle.pid)
        rows = [
            ["child", percent(after[0] - before[0], elapsed), f"{rss_mb(child):.0f}"],
            ["exporter, added", percent(own - alone, elapsed), ""],
            ["idle Python", percent(after[1] - before[1], elapsed), f"{rss_mb(idle.pid):.0f}"],
        ]
    finally:
        idle.kill()
        idle.wait()
        counters.stop()
    return rows, readings


def opened_gpu(index: int, clock: SystemClock) -> OpenedGpu:
    """Return a GPU as NVML opens it."""
    journal = Journal(f"GPU {index}")
    journal.now = clock.monotonic()
    return OpenedGpu(None, Device(index, uuid_of(index), "RTX"), (None,), journal)


def exporter_seconds(
    opened: Sequence[OpenedGpu], sources: Sequence[CounterSource], clock: SystemClock, rounds: int
) -> tuple[float, int]:
    """Read once a second; return this process's CPU time, and how many activities there were."""
    before, readings = time.process_time(), 0
    for _ in range(rounds):
        time.sleep(1.0)
        for gpu, source in zip(opened, sources, strict=False):
            gpu.journal.now = clock.monotonic()
            readings += len(source.read(gpu.journal.now))
    return time.process_time() - before, readings


def percent(cpu: float, elapsed: float) -> str:
    """Return the share of a core."""
    return f"{100 * cpu / elapsed:.2f}"


if __name__ == "__main__":
    sys.exit(main())
