# SPDX-License-Identifier: Apache-2.0
"""How many CPU cores a process keeps busy, from the CPU time in /proc/PID/stat."""

from __future__ import annotations

import os
from collections.abc import Iterable

from exporter.sources.proc.procfs import START_TIME, stat_fields

TIMES = slice(11, 13)
"""Fields 14 and 15 of /proc/PID/stat (utime, stime), counted from the third: of all threads."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class CpuUse:
    """The CPU time of the processes on one GPU between two reads."""

    def __init__(self, procfs: str) -> None:
        self._procfs = procfs
        self._reads: dict[tuple[int, int], tuple[int, float]] = {}
        """Ticks and the time of the read, by PID and start time: PIDs are used again."""

    def of(self, pids: Iterable[int], now: float) -> dict[int, float]:
        """Return by PID how many cores were busy up to the monotonic time `now`.

        A process that is new, or cannot be seen, is left out; all others are forgotten.
        """
        found: dict[int, float] = {}
        before, self._reads = self._reads, {}
        for pid in set(pids):
            fields = stat_fields(self._procfs, pid)
            try:
                key, ticks = (pid, int(fields[START_TIME])), sum(map(int, fields[TIMES]))
            except (IndexError, ValueError):
                continue
            self._reads[key] = ticks, now
            ticks_before, at = before.get(key, (0, now))
            if now > at:
                found[pid] = max(0.0, (ticks - ticks_before) / TICKS_PER_SECOND / (now - at))
        return found
