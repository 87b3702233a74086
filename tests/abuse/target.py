# SPDX-License-Identifier: Apache-2.0
"""A daemon under attack: what it uses, and how a scraper beside the attack fares."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.e2e.daemons import Daemon
from tests.e2e.processes import ROOT, environment
from tests.waiting import wait_until

MOST_MB = 256 * 2**20 / 1e6
"""What the container is given: no attack may need more, at any time."""
GROWTH_MB = 20.0
"""How much more than before a daemon may have after an attack; the allocator keeps some."""
ANSWER_SECONDS = 5.0
"""In which an answer comes under attack: generous, for machines that are busy."""
DEADLINE_SECONDS = 10.0
"""After which a client that does not move is sent away."""
TOLERANCE_SECONDS = 6.0
QUIET_LINES = 20
"""How many log lines an attack may cause: refusals are counters."""
AFTERWARDS_SECONDS = 5.0


def memory_mb(pid: int, name: str = "VmRSS") -> float:
    """Return a line of /proc/PID/status, in MB of 10^6 bytes."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        for line in status:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024 / 1e6
    message = f"process {pid} has no {name}: it has ended"
    raise AssertionError(message)


def sockets(pid: int) -> int:
    """Return how many sockets a process has open."""
    count = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:")
    return count


@dataclass
class Seen:
    """What was seen while an attack ran."""

    name: str
    before_mb: float
    sockets_before: int = 0
    """With that of the scraper."""
    sockets_after: int = 0
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    peak_mb: float = 0.0
    after_mb: float = 0.0
    lines: int = 0
    """Log lines that were written meanwhile."""

    def row(self) -> str:
        """Return the row of the table that the suite prints."""
        ordered = sorted(self.seconds)
        p50, p99 = (
            f"{ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3:7.1f}"
            if ordered
            else "      -"
            for share in (0.5, 0.99)
        )
        return (
            f"abuse: {self.name:38} scrape p50 {p50} ms, p99 {p99} ms ({len(ordered):3d});"
            f" RSS {self.before_mb:5.1f} before, {self.peak_mb:6.1f} under,"
            f" {self.after_mb:5.1f} after, in MB"
        )


Record = Callable[[str, object], None]


@contextlib.contextmanager
def under_attack(
    daemon: Daemon,
    name: str,
    record: Record,
    *,
    url: str = "",
    quiet: bool = True,
    answering: bool = True,
) -> Iterator[Seen]:
    """Scrape beside what is done in the block, then judge what every attack is judged by.

    That the scraper was always answered, if `answering`; that memory stayed below the limit and
    came back; that no socket was left; and, if `quiet`, that the log did not grow. A daemon that
    asks for a password needs a `url` with it (see `scraping.Client`).
    """
    seen = Seen(name, memory_mb(daemon.pid))
    with contextlib.suppress(OSError), open(f"/proc/{daemon.pid}/clear_refs", "w") as reset:
        reset.write("5")  # the peak counts from now on
    lines = len(daemon.lines())
    scraper = subprocess.Popen(
        [sys.executable, "-m", "tests.abuse.scraping", url or daemon.url],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert scraper.stdout is not None
        assert scraper.stdout.readline() == "ready\n"
        seen.sockets_before = sockets(daemon.pid)
        yield seen
    finally:
        output, _ = scraper.communicate()
    found = json.loads(output)
    seen.seconds, seen.failures = found["seconds"], found["failures"]
    seen.peak_mb = memory_mb(daemon.pid, "VmHWM")

    def recovered() -> bool:
        seen.sockets_after, seen.after_mb = sockets(daemon.pid), memory_mb(daemon.pid)
        fewer = seen.sockets_after < seen.sockets_before
        return fewer and seen.after_mb < seen.before_mb + GROWTH_MB

    with contextlib.suppress(AssertionError):
        wait_until(recovered, AFTERWARDS_SECONDS)
    seen.lines = len(daemon.lines()) - lines
    record("measured", seen.row())
    print(seen.row())
    assert seen.peak_mb < MOST_MB, f"{name}: {seen.peak_mb:.0f} MB at its peak"
    assert seen.after_mb < seen.before_mb + GROWTH_MB, seen.row()
    assert seen.sockets_after < seen.sockets_before, f"{name}: sockets are left over"
    if quiet:
        assert seen.lines <= QUIET_LINES, f"{name}: {seen.lines} log lines"
    if answering:
        assert seen.failures == [], f"{name}: {seen.failures[:5]}"
        assert seen.seconds, f"{name}: nothing was scraped"
        assert max(seen.seconds) < ANSWER_SECONDS, seen.row()
