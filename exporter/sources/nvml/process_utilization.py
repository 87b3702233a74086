# SPDX-License-Identifier: Apache-2.0
"""How much of a GPU's SM time each process had since the last read, as the driver samples it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from ctypes import byref, c_uint, c_ulonglong
from typing import Any

import pynvml

from exporter.sources.nvml.plausible import ENGINE_PERCENT
from exporter.sources.nvml.probe import Probe
from exporter.sources.reading_state import Journal

GROUP = "process_utilization"
ENTRIES = 128
"""Room at first: the driver remembers about a hundred samples."""
ATTEMPTS = 4
"""How often a list that outgrew its array is read again, each time into one twice as large."""
AHEAD_MICROSECONDS = 60_000_000
"""A stamp that is later than the host's clock by more is none."""

_VALUES = "values"
Entry = tuple[int, int, int]
"""The process, the driver's stamp in microseconds, and its percentage of the SM time."""


class ProcessUtilization:
    """The processes of one GPU that had SM time since the last read.

    The driver has one entry for each, averaged since the stamp that it is given, and none for those
    that had nothing. Its first answer is the average over an unknown time: only its stamp is used.
    """

    def __init__(self, handle: Any, journal: Journal) -> None:
        self._handle = handle
        self._journal = journal
        self._room = ENTRIES
        self._seen = 0
        """The newest stamp that was read, in microseconds; 0: none yet."""
        self._probe: Probe[list[Entry]] = Probe(journal, GROUP, (self._newest, self._older))

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
        for pid, stamp, percent in list(self._new(entries)):
            if ENGINE_PERCENT(percent) is None:
                refused.add(pid)
            else:
                percents[pid].append(percent)
                self._seen = max(self._seen, stamp)
        self._note(bool(refused))
        if first:
            return {}
        return {
            pid: sum(percents[pid]) / len(percents[pid]) / 100 if pid in percents else 0.0
            for pid in pids
            if pid not in refused and (complete or pid in percents)
        }

    def _new(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the new entries: drivers also return old ones of processes that have ended."""
        latest = _now() + AHEAD_MICROSECONDS
        return (entry for entry in entries if self._seen < entry[1] <= latest)

    def _note(self, refused: bool) -> None:
        if refused:
            self._journal.implausible(GROUP, _VALUES, worked=self._seen != 0)
        else:
            self._journal.answered(GROUP, _VALUES)

    # pynvml's own calls ask for the size first, raise NVMLError(0) where that succeeds, and fail
    # if the list has grown before their second call.

    def _newest(self) -> list[Entry]:
        call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessesUtilizationInfo")
        info = pynvml.c_nvmlProcessesUtilizationInfo_v1_t()
        for _ in range(ATTEMPTS):
            array = (pynvml.c_nvmlProcessUtilizationInfo_v1_t * self._room)()
            info.version = pynvml.ProcessesUtilizationInfo_v1
            info.processSamplesCount = self._room
            info.lastSeenTimeStamp = self._seen
            info.procUtilArray = array
            code = call(self._handle, byref(info))
            if not self._too_small(code, info.processSamplesCount):
                break
        return _entries(code, array, info.processSamplesCount)

    def _older(self) -> list[Entry]:
        call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessUtilization")
        for _ in range(ATTEMPTS):
            array = (pynvml.c_nvmlProcessUtilizationSample_t * self._room)()
            count = c_uint(self._room)
            code = call(self._handle, array, byref(count), c_ulonglong(self._seen))
            if not self._too_small(code, count.value):
                break
        return _entries(code, array, count.value)

    def _too_small(self, code: int, count: int) -> bool:
        """Return whether the array was too small; if so, double the next one."""
        if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            return False
        self._room = 2 * max(count, self._room)
        return True


def _entries(code: int, array: Any, count: int) -> list[Entry]:
    """Return what the driver wrote.

    Raises:
        pynvml.NVMLError: it refused.
    """
    if code == pynvml.NVML_ERROR_NOT_FOUND:  # nobody had any
        return []
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    return [(each.pid, each.timeStamp, each.smUtil) for each in array[: min(count, len(array))]]


def _now() -> int:
    return int(time.time() * 1e6)
