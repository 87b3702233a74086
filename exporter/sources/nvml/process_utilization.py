# SPDX-License-Identifier: Apache-2.0
"""How much of a GPU's SM time each process had since the last read, as the driver samples it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection
from ctypes import byref, c_uint, c_ulonglong
from typing import Any

import pynvml

from exporter.sources.nvml.plausible import ENGINE_PERCENT
from exporter.sources.nvml.probe import Probe
from exporter.sources.reading_state import Journal

GROUP = "process_utilization"
ENTRIES = 128
"""Room at first: the driver remembers about a hundred samples."""
ATTEMPTS = 5
"""How often a list that outgrew its array is read again, each time into one twice as large."""
AHEAD_MICROSECONDS = 60_000_000
"""A stamp that is later than the host's clock by more is none."""

_VALUES = "values"
Entry = tuple[int, int, int]
"""The process, the driver's stamp in microseconds, and its percentage of the SM time."""


class GrowingArray:
    """An array of structs that the driver fills, and that grows with the driver's list.

    pynvml's own calls read the length first, and fail if the list has grown before the next call.
    """

    def __init__(self, struct: Any, entries: int) -> None:
        """Make room for so many structs at first."""
        self._struct = struct
        self._array = (struct * entries)()

    def read(self, fill: Callable[[Any, c_uint], int]) -> list[Any]:
        """Return the entries, which are valid until the next read.

        `fill(array, count)` calls the driver and returns its code; `count` is the room before the
        call and the length of the list after it.

        Raises:
            pynvml.NVMLError: the driver refused, or the list grows faster than it can be read.
        """
        code = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        for _ in range(ATTEMPTS):
            count = c_uint(len(self._array))
            code = fill(self._array, count)
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            self._array = (self._struct * (2 * max(count.value, len(self._array))))()
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
        return list(self._array[: min(count.value, len(self._array))])


class ProcessUtilization:
    """The processes of one GPU that had SM time since the last read.

    The driver has one entry for each, averaged since the stamp that it is given, and none for those
    that had nothing. Its first answer is the average over an unknown time: only its stamp is used.
    """

    def __init__(self, handle: Any, journal: Journal) -> None:
        self._handle = handle
        self._journal = journal
        self._seen = 0
        """The newest stamp that was read, in microseconds; 0: none yet."""
        self._array = GrowingArray(pynvml.c_nvmlProcessUtilizationSample_t, ENTRIES)
        self._probe: Probe[list[Entry]] = Probe(journal, GROUP, (self._entries,))

    def read(self, pids: Collection[int], *, complete: bool) -> dict[int, float]:
        """Return the ratio by PID of those of these processes for which it is known.

        With `complete`, a process without an entry had nothing; else it may have been counted as
        another, as clients of MPS may be as their server.
        """
        if self._seen > _now() + AHEAD_MICROSECONDS:
            self._seen = 0  # the host's clock was set back
        entries = self._probe()
        if entries is None:
            return {}
        first = self._seen == 0
        percents: dict[int, list[int]] = defaultdict(list)
        refused = set()
        # Drivers also return old entries of processes that have ended.
        since, latest = self._seen, _now() + AHEAD_MICROSECONDS
        for pid, stamp, percent in entries:
            if not since < stamp <= latest:
                continue
            if ENGINE_PERCENT(percent) is None:
                refused.add(pid)
            else:
                percents[pid].append(percent)
                self._seen = max(self._seen, stamp)
        if refused:
            self._journal.implausible(GROUP, _VALUES, worked=self._seen != 0)
        else:
            self._journal.answered(GROUP, _VALUES)
        if first:
            return {}
        return {
            pid: sum(percents[pid]) / len(percents[pid]) / 100 if pid in percents else 0.0
            for pid in pids
            if pid not in refused and (complete or pid in percents)
        }

    def _entries(self) -> list[Entry]:
        """Return what the driver has of each process; nothing if no process had any."""
        call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessUtilization")

        def fill(array: Any, count: c_uint) -> int:
            code: int = call(self._handle, array, byref(count), c_ulonglong(self._seen))
            return code

        try:
            return [(each.pid, each.timeStamp, each.smUtil) for each in self._array.read(fill)]
        except pynvml.NVMLError_NotFound:
            return []


def _now() -> int:
    return int(time.time() * 1e6)
