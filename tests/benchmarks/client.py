# SPDX-License-Identifier: Apache-2.0
"""What the training client costs a job: per watched step, per report, and of a 10 ms step.

The named peer is prometheus-client's ``Histogram.observe``, with which a job would count its steps
by hand: it needs a clock read before and after besides, and shows less.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path

from prometheus_client import CollectorRegistry, Histogram

from roofline_job import watch
from roofline_job.process import PROCESS
from roofline_job.thread_accounts import NEVER, ThreadAccount
from tests.benchmarks.rig import machine, table

STEPS = 20_000
ROUNDS = 40
REPORTS = 300
COLD_REPORTS = 30
STEP_SECONDS = 0.01
PACED_STEPS = 300
STRETCHES = 6
BATCH = [0.0] * 64

WATCH_NS = 1_000
STATED_NS = 3_000
HOT_US = 15
COLD_US = 300
SLOWDOWN_PERCENT = 0.1


def _per_step_ns(loop: Callable[[int], object]) -> float:
    """Return what a step costs in the quietest of many rounds: what else runs only adds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        loop(STEPS)
        best = min(best, time.perf_counter_ns() - began)
    return best / STEPS


def _plain(batches: Iterable[object]) -> None:
    deque(batches, maxlen=0)


def _observed(histogram: Histogram, batches: Iterable[object]) -> Iterator[object]:
    iterator, clock = iter(batches), time.perf_counter
    while True:
        began = clock()
        batch = next(iterator, None)
        histogram.observe(clock() - began)
        if batch is None:
            return
        yield batch


def _histogram() -> Histogram:
    return Histogram("wait_seconds", "Wait.", registry=CollectorRegistry())


def per_step() -> dict[str, float]:
    """Return the cost of a step in nanoseconds, over that of the bare loop."""
    account = _account()
    histogram = _histogram()

    def stated(steps: int) -> None:
        watched = watch(
            repeat(BATCH, steps), samples_per_batch=len, flops_per_sample=1e9, flops_per_step=1e12
        )
        _plain(watched)

    bare = _per_step_ns(lambda steps: _plain(repeat(BATCH, steps)))
    costs = {"a bare loop": bare}
    for name, loop in (
        ("watch", lambda steps: _plain(watch(repeat(BATCH, steps)))),
        ("watch with samples and FLOPs", stated),
        ("Histogram.observe", lambda steps: _plain(_observed(histogram, repeat(BATCH, steps)))),
    ):
        account.due_ns = NEVER - 1  # no report
        costs[name] = _per_step_ns(loop) - bare
    return costs


def _account() -> ThreadAccount:
    account = PROCESS.account("benchmark")
    if account is None:
        raise RuntimeError("this process may not report")
    return account


def report_us(accounts: Sequence[ThreadAccount], daemon: socket.socket) -> float:
    """Return what a report costs in microseconds, of these accounts in turn."""
    found = []
    for account in accounts:
        account.start(0)
        began = time.perf_counter_ns()
        account.report(0)
        found.append((time.perf_counter_ns() - began) / 1_000)
        daemon.recv(1 << 16)
    return _quietest(found)


def _quietest(costs: Sequence[float]) -> float:
    """Return the least of the medians of several stretches: what else runs here only adds."""
    stretch = max(1, len(costs) // STRETCHES)
    starts = range(0, len(costs) - stretch + 1, stretch)
    return min(statistics.median(costs[start : start + stretch]) for start in starts)


def slowdowns_percent(account: ThreadAccount, report_us: float) -> tuple[float, float]:
    """Return by how much a step of 10 ms is longer when watched, and when observed by hand.

    The watched one has one report a second on top. Only what can differ is timed, the calls of
    next(), each after 10 ms of other work. Plain, watched and observed steps take turns, so that
    what else runs here meets all alike.
    """
    account.due_ns = NEVER - 1  # no report
    steps = range(PACED_STEPS)
    iterators = (iter(steps), iter(watch(steps)), _observed(_histogram(), steps))
    took_ns: tuple[list[int], ...] = ([], [], [])
    for _ in steps:
        for iterator, took in zip(iterators, took_ns, strict=True):
            end_ns = time.perf_counter_ns() + int(STEP_SECONDS * 1e9)
            while time.perf_counter_ns() < end_ns:
                sum(BATCH)
            began_ns = time.perf_counter_ns()
            next(iterator)
            took.append(time.perf_counter_ns() - began_ns)
    plain, watched, observed = (_quietest(took) / 1e9 / STEP_SECONDS for took in took_ns)
    return (watched - plain + report_us / 1e6) * 100, (observed - plain) * 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a target is missed."""
    argparse.ArgumentParser(description=__doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "training.sock"
        os.environ["ROOFLINE_TRAINING_SOCKET"] = str(path)
        daemon = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        daemon.bind(str(path))
        costs = per_step()
        cold = [ThreadAccount(f"cold {index}", None, "client") for index in range(COLD_REPORTS)]
        cold_us = report_us(cold, daemon)
        hot_us = report_us([_account()] * REPORTS, daemon)
        slowdown, by_hand = slowdowns_percent(_account(), hot_us)
        daemon.close()
    PROCESS.reset()
    figures = (
        ("watch, per step", costs["watch"], "ns", WATCH_NS),
        ("with samples and FLOPs", costs["watch with samples and FLOPs"], "ns", STATED_NS),
        ("report, hot", hot_us, "us", HOT_US),
        ("report, first of a run", cold_us, "us", COLD_US),
        ("slowdown of a 10 ms step", slowdown, "%", SLOWDOWN_PERCENT),
    )
    rows = [
        (name, f"{value:,.2f} {unit}", f"{target:g}", "yes" if value <= target else "NO")
        for name, value, unit, target in figures
    ]
    print(f"{machine()}\n\n{table(('cost', 'measured', 'target', 'met'), rows)}\n")
    peer = costs["Histogram.observe"]
    for name, cost in costs.items():
        print(f"{name}: {cost:,.0f} ns, {cost / peer:.2f} of Histogram.observe")
    print(f"a 10 ms step with Histogram.observe: {by_hand:.2f} % slower")
    return int(any(value > target for _, value, _, target in figures))


if __name__ == "__main__":
    sys.exit(main())
