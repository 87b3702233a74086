# SPDX-License-Identifier: Apache-2.0
"""Shows what open pages cost the exporter: CPU time, bytes and memory by number of viewers."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from tests.benchmarks.rig import cpu_seconds, daemon, machine, print_missed, rss_mb, table
from tests.e2e.daemons import StreamClient

SETTLE_SECONDS = 2.0
READ_SECONDS = 0.1
CPU_PERCENT = 1.0
"""Of a core, at most, for ten open pages."""
CHECKED_VIEWERS = 10
HEAD = ("viewers", "CPU %", "added %", "events/s", "B/s each", "RSS MB")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one number of viewers costs, over all windows with so many."""

    viewers: int
    cpu_percent: float
    events_per_second: float
    """That each viewer got."""
    bytes_per_second: float
    """That each viewer got."""
    rss_mb: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table; return 1 where the checked target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.viewers", description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--viewers", default="0,1,10,32", help="numbers of viewers, from 0")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a window")
    parser.add_argument("--rounds", type=int, default=3, help="windows for each number")
    parser.add_argument("--check", action="store_true", help="fail if the target is missed")
    options = parser.parse_args(argv)
    print(
        f"{machine()}\n{options.gpus} H100 GPUs whose readings change all the time, polled once a\n"
        f"second; {options.rounds} windows of {options.seconds:g} s for each number of viewers, in "
        "turn\n",
        flush=True,
    )
    numbers = [int(number) for number in options.viewers.split(",")]
    costs = measure(options.gpus, numbers, options.seconds, options.rounds)
    print(table(HEAD, rows(costs)))
    return print_missed(missed(costs), check=options.check)


def rows(costs: Sequence[Cost]) -> list[list[str]]:
    """Return the lines of the table; what is added is beside the line without viewers."""
    alone = next((one.cpu_percent for one in costs if not one.viewers), None)
    return [
        [
            str(one.viewers),
            f"{one.cpu_percent:.2f}",
            "-" if alone is None else f"{one.cpu_percent - alone:.2f}",
            f"{one.events_per_second:.2f}",
            f"{one.bytes_per_second:.0f}",
            f"{one.rss_mb:.1f}",
        ]
        for one in costs
    ]


def missed(costs: Sequence[Cost]) -> list[str]:
    """Return in one line what ten viewers cost beyond the target, if they do."""
    by_number = {one.viewers: one.cpu_percent for one in costs}
    if not {0, CHECKED_VIEWERS} <= by_number.keys():
        return []
    added = by_number[CHECKED_VIEWERS] - by_number[0]
    if added <= CPU_PERCENT:
        return []
    return [f"{CHECKED_VIEWERS} viewers add {added:.2f} % of a core, target {CPU_PERCENT:g}"]


def measure(gpus: int, numbers: Sequence[int], seconds: float, rounds: int) -> list[Cost]:
    """Return the cost of each number of viewers, measured in turn so that drift hits all alike."""
    with tempfile.TemporaryDirectory() as folder, daemon(gpus, Path(folder)) as served:
        windows: dict[int, list[Cost]] = {number: [] for number in numbers}
        for _ in range(rounds):
            for number in numbers:
                viewers = [StreamClient(served.port) for _ in range(number)]
                _read(viewers, SETTLE_SECONDS)
                windows[number].append(_window(served.pid, viewers, seconds))
                for each in viewers:
                    each.close()
    return [
        Cost(
            number,
            mean([one.cpu_percent for one in found]),
            mean([one.events_per_second for one in found]),
            mean([one.bytes_per_second for one in found]),
            found[-1].rss_mb,
        )
        for number, found in windows.items()
    ]


def _window(pid: int, viewers: Sequence[StreamClient], seconds: float) -> Cost:
    cpu, began = cpu_seconds(pid), time.monotonic()
    data = _read(viewers, seconds)
    wall, cpu = time.monotonic() - began, cpu_seconds(pid) - cpu
    per_second = 1 / wall / max(len(viewers), 1)
    events = data.count(b"event: ") * per_second
    return Cost(len(viewers), 100 * cpu / wall, events, len(data) * per_second, rss_mb(pid))


def _read(viewers: Sequence[StreamClient], seconds: float) -> bytes:
    """Return what comes to them for so long."""
    deadline, data = time.monotonic() + seconds, b""
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, READ_SECONDS))
        data += b"".join(each.read_for(0.001) for each in viewers)
    return data


if __name__ == "__main__":
    sys.exit(main())
