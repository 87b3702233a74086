# SPDX-License-Identifier: Apache-2.0
"""Which processes have mapped Transformer Engine, with which tensor work may be in FP8."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from exporter.sources.proc.procfs import start_time

MOST_BYTES = 4 * 1024 * 1024
"""A process that has loaded much has 3000 mappings, 300 kB; the rest of a longer list is not read.
"""
WAIT_SECONDS = 60.0
"""Jobs import late: a process is looked at again after this time."""

_LIBRARY = re.compile(rb"/(?:lib)?transformer_engine[^/\n]*\.so")


class _Look(NamedTuple):
    """What was last seen of one process, at a monotonic time."""

    found: bool | None
    at: float


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
            look = self._looks.get((pid, started))
            if look is None or (not look.found and now >= look.at + WAIT_SECONDS):
                look = _Look(maps_transformer_engine(self._procfs, pid), now)
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
