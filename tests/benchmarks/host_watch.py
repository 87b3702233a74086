# SPDX-License-Identifier: Apache-2.0
"""The cost of watching jobs from outside: ``python -m tests.benchmarks.host_watch [GPUS WORKERS]``.

As many processes as asked for, each with workers that rest and compute in turns, are sampled for
20 s; printed is the CPU time of the sampling process, in percent of a core.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from exporter.clock import SystemClock
from exporter.sources.host.host import HostActivityReader

SECONDS = 20.0


def job(workers: int) -> int:
    """Start a process with workers, which end with it; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    for _ in range(workers):
        if os.fork() == 0:
            Path("/proc/self/comm").write_text("pt_data_worker")
            break
    while True:
        time.sleep(0.02)


def main() -> None:
    """Print the cost."""
    gpus, workers = (int(each) for each in sys.argv[1:3]) if len(sys.argv) > 2 else (8, 16)
    pids = [job(workers) for _ in range(gpus)]
    try:
        reader = HostActivityReader("/proc", "/sys", SystemClock())
        reader.watch(frozenset(pids))
        reader.start()
        time.sleep(2.0)
        reader.take()
        began, used = time.monotonic(), time.process_time()
        samples = 0
        while time.monotonic() < began + SECONDS:
            time.sleep(1.0)
            seen = reader.take()
            samples += sum(len(each.states) for each in seen.values())
        part = (time.process_time() - used) / (time.monotonic() - began)
        counted = sum(each.workers or 0 for each in seen.values())
        reader.watch(frozenset())
        time.sleep(1.0)
        idle = time.process_time()
        time.sleep(5.0)
        idle = time.process_time() - idle
        print(
            f"{gpus} GPUs x {workers} workers: {100 * part:.1f} % of a core, "
            f"{samples / gpus / SECONDS:.1f} samples a second of each, {counted} workers seen; "
            f"{100 * idle / 5:.2f} % while nothing is watched"
        )
        reader.stop()
    finally:
        for pid in pids:
            os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
