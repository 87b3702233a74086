# SPDX-License-Identifier: Apache-2.0
"""Shows what reporting training ranks cost the exporter: CPU time, memory and the length of a page.

The peer is the same daemon without a rank, in the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.rig import cpu_seconds, daemon, machine, print_missed, rss_mb, table
from tests.benchmarks.scraper import Scraper
from tests.e2e.daemons import Page

CPU_PERCENT = 1.0
"""Of a core, at most, for the ranks of a node."""
SETTLE_SECONDS = 3.0
HEAD = ("ranks", "CPU %", "added %", "reports taken", "page kB", "RSS MB")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table; return 1 where the checked target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ranks", description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a window")
    parser.add_argument("--check", action="store_true", help="fail if the target is missed")
    options = parser.parse_args(argv)
    print(
        f"{machine()}\n{options.gpus} H100 GPUs whose readings change all the time; polled, "
        f"scraped and reported to once a second; windows of {options.seconds:g} s\n",
        flush=True,
    )
    alone, with_ranks = measure(options.gpus, options.ranks, options.seconds)
    added = with_ranks[1] - alone[1]
    rows = [
        [
            str(ranks),
            f"{percent:.2f}",
            f"{added:.2f}" if ranks else "-",
            f"{taken:.0f}",
            f"{kilobytes:.0f}",
            f"{rss:.1f}",
        ]
        for ranks, percent, taken, kilobytes, rss in (alone, with_ranks)
    ]
    print(table(HEAD, rows))
    problem = f"{options.ranks} ranks add {added:.2f} % of a core, target {CPU_PERCENT:g}"
    return print_missed([problem] if added > CPU_PERCENT else [], check=options.check)


def measure(gpus: int, ranks: int, seconds: float) -> list[tuple[int, float, float, float, float]]:
    """Return ranks, CPU percent, reports, page in kB and RSS in MB, without ranks and with them.

    Once they reported they are shown.
    """
    with tempfile.TemporaryDirectory() as folder, daemon(gpus, Path(folder)) as served:
        scraper, costs = Scraper(served.port), []
        uuids = [labels["uuid"] for labels, _ in served.metrics().rows("gpu_up")]
        for number in (0, ranks):
            with _reporting(number, served.socket, uuids):
                time.sleep(SETTLE_SECONDS)
                cpu, began = cpu_seconds(served.pid), time.monotonic()
                page = _scrape(scraper, seconds)
                percent = 100 * (cpu_seconds(served.pid) - cpu) / (time.monotonic() - began)
            taken = Page(page).value("roofline_exporter_training_reports_total")
            costs.append((number, percent, taken, len(page) / 1000, rss_mb(served.pid)))
    return costs


def _scrape(scraper: Scraper, seconds: float) -> str:
    """Scrape once a second for so long; return the last page."""
    deadline, text = time.monotonic() + seconds, ""
    while time.monotonic() < deadline:
        text = scraper.scrape().text()
        time.sleep(1.0)
    return text


@contextlib.contextmanager
def _reporting(ranks: int, path: str, uuids: Sequence[str]) -> Iterator[None]:
    """Have so many ranks report once a second, spread over it, on these GPUs."""
    stopped = threading.Event()
    reports = [_report(rank, ranks, uuids[rank % len(uuids)]) for rank in range(ranks)]

    def report() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            while not stopped.is_set():
                for each in reports:
                    _work(each)
                    sender.sendto(json.dumps(each).encode(), path)
                    stopped.wait(1.0 / ranks)

    thread = threading.Thread(target=report if ranks else lambda: None)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _report(rank: int, ranks: int, uuid: str) -> dict[str, Any]:
    return {
        "version": 1,
        "id": os.urandom(16).hex(),
        "sequence": 0,
        "pid": os.getpid(),
        "job": "benchmark",
        "rank": rank,
        "world_size": ranks,
        "device": uuid,
        "framework": "torch 2.13.0",
        "precision": "bf16",
        "steps": 0,
        "batches": 0,
        "samples": 0,
        "model_flops": 0.0,
        "step_seconds": 0.0,
        "phase_seconds": {"data": 0.0, "forward": 0.0, "backward": 0.0, "checkpoint": 0.0},
        "phase_gpu_idle_seconds": {"data": 0.0, "checkpoint": 0.0, "logging": 0.0},
        "loader": {"workers": 8, "prefetch_factor": 2, "pin_memory": True, "ready_batches": 3},
        "memory_bytes": {"allocated": 2**33, "reserved": 2**34, "peak": 2**34},
    }


def _work(report: dict[str, Any]) -> None:
    """Let a second of training pass."""
    report["sequence"] += 1
    report["steps"] += 10
    report["batches"] += 10
    report["samples"] += 2560
    report["model_flops"] += 3e14
    report["step_seconds"] += 1.0
    for phase, seconds in (("data", 0.013), ("forward", 0.31), ("backward", 0.6)):
        report["phase_seconds"][phase] += seconds
    report["phase_gpu_idle_seconds"]["data"] += 0.0071


if __name__ == "__main__":
    sys.exit(main())
