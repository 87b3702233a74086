# SPDX-License-Identifier: Apache-2.0
"""Which processes have mapped Transformer Engine, with which tensor work may be in FP8."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from exporter.sources.proc.procfs import start_time

MOST_BYTES = 4 * 1024 * 1024
"""A process that has loaded much has 3000 mappings, 300 kB; the rest of a longer list is not read.
"""
FIRST_WAIT_SECONDS = 10.0
LONGEST_WAIT_SECONDS = 640.0
"""Jobs import late: a process is looked at again after waits that double."""

_LIBRARY = re.compile(rb"/(?:lib)?transformer_engine[^/\n]*\.so")


@dataclass(slots=True)
class _Look:
    """What was last seen of one process."""

    found: bool | None
    next_at: float
    """Monotonic time of the next look."""
    wait_seconds: float


class Mapped:
    """The processes on one GPU, by whether they have mapped Transformer Engine."""

    def __init__(self, procfs: str) -> None:
        self._procfs = procfs
        self._looks: dict[tuple[int, int], _Look] = {}
        """By PID and start time, because PIDs are used again."""

    def of(self, pids: Iterable[int], now: float) -> dict[int, bool | None]:
        """Return it by PID, at the monotonic time `now`; None where it cannot be seen.

        All other processes are forgotten.
        """
        looks: dict[tuple[int, int], _Look] = {}
        found: dict[int, bool | None] = {}
        for pid in set(pids):
            started = start_time(self._procfs, pid)
            if started is None:
                found[pid] = None
                continue
            look = self._looks.get((pid, started)) or _Look(None, now, FIRST_WAIT_SECONDS)
            if not look.found and now >= look.next_at:
                look.found = maps_transformer_engine(self._procfs, pid)
                look.next_at = now + look.wait_seconds
                look.wait_seconds = min(2.0 * look.wait_seconds, LONGEST_WAIT_SECONDS)
            looks[pid, started] = look
            found[pid] = look.found
        self._looks = looks
        return found


def maps_transformer_engine(procfs: str, pid: int) -> bool | None:
    """Return whether a process has mapped a library of Transformer Engine.

    None where its mappings cannot be read: they are for its own user and for root.
    """
    try:
        with open(f"{procfs}/{pid}/maps", "rb") as file:
            return _LIBRARY.search(file.read(MOST_BYTES)) is not None
    except OSError:
        return None
