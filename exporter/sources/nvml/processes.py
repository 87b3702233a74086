# SPDX-License-Identifier: Apache-2.0
"""Which processes the driver lists on a GPU, by share, and how much of the SM time each had."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from ctypes import byref, c_uint, c_ulonglong
from itertools import islice
from typing import Any

import pynvml

from exporter.model.reading import COMPUTE_KINDS, Process
from exporter.sources.nvml import plausible
from exporter.sources.nvml.probe import Probe
from exporter.sources.proc.cgroup import memberships
from exporter.sources.proc.procfs import (
    CpuUse,
    Identities,
    Identity,
    Mapped,
    allowed_cpus,
    sees_the_hosts_processes,
)
from exporter.sources.reading_state import Journal

LISTS: Mapping[str, str] = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}
MPS_SERVER = "nvidia-cuda-mps"
"""How the name of its command begins, of which the kernel keeps 15 bytes."""
VERSIONS = ("_v3", "_v2")
ENTRIES = 128
"""Room at first; of samples, the driver remembers about a hundred."""
MOST_ENTRIES = 65_536
"""A GPU has fewer processes; a driver that is at fault may find any array too small."""
MOST_LOOKED_UP = 1024
"""Of a GPU, the largest: to read many more in /proc would take as long as a call that hangs."""
UNKNOWN = Identity()
GROUP = "process_utilization"
ATTEMPTS = 5
"""How often a list that outgrew its array is read again, each time into one twice as large."""
AHEAD_MICROSECONDS = 60_000_000
"""A stamp that is later than the host's clock by more is none."""
VALUES = "values"
Entry = tuple[int, int, int]
"""The process, the driver's stamp in microseconds, and its percentage of the SM time."""


class GrowingArray:
    """An array that the driver fills, and that grows with the driver's list; where the list grows
    between reading its length and reading it, pynvml's own calls fail."""

    def __init__(self, struct: Any) -> None:
        self._struct = struct
        self._room = ENTRIES

    def read(self, fill: Callable[[Any, c_uint], int]) -> list[Any]:
        """Return the entries, which are valid until the next read.

        `fill(array, count)` calls the driver and returns its code; `count` is the room before the
        call and the length of the list after it.

        Raises:
            pynvml.NVMLError: the driver refused, or the list grows faster than it can be read.
        """
        code = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        for _ in range(ATTEMPTS):
            array = (self._struct * self._room)()
            count = c_uint(self._room)
            code = fill(array, count)
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            self._room = min(2 * max(count.value, self._room), MOST_ENTRIES)
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
        return list(array[: min(count.value, len(array))])


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
        self._array = GrowingArray(pynvml.c_nvmlProcessUtilizationSample_t)
        self._probe: Probe[list[Entry]] = Probe(journal, GROUP, (self._entries,))

    def read(self, pids: Collection[int], *, complete: bool) -> dict[int, float]:
        """Return the ratio by PID, where it is known; only with `complete` had a process without an
        entry nothing: clients of MPS may be counted as their server."""
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
            if plausible.ENGINE_PERCENT(percent) is None:
                refused.add(pid)
            else:
                percents[pid].append(percent)
                self._seen = max(self._seen, stamp)
        self._journal.judged(GROUP, VALUES, possible=not refused, worked=self._seen != 0)
        if first:
            return {}
        return {
            pid: sum(percents[pid]) / len(percents[pid]) / 100 if pid in percents else 0.0
            for pid in pids
            if pid not in refused and (complete or pid in percents)
        }

    def _entries(self) -> list[Entry]:
        """Return the driver's entry of each process; empty if no process had SM time."""
        call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessUtilization")

        def fill(array: Any, count: c_uint) -> int:
            code: int = call(self._handle, array, byref(count), c_ulonglong(self._seen))
            return code

        try:
            return [(each.pid, each.timeStamp, each.smUtil) for each in self._array.read(fill)]
        except pynvml.NVMLError_NotFound:
            return []


class ProcessLists:
    """The compute, graphics and MPS processes of one GPU; expensive to read on some hosts."""

    def __init__(
        self,
        handle: Any,
        journal: Journal,
        procfs_root: str,
        *,
        owners: bool = True,
        has_fp8: bool = False,
        utilization: bool = False,
    ) -> None:
        """Read also, if wanted, who owns the processes, what they have loaded for FP8, and how much
        of the SM time each of them had."""
        self._journal = journal
        self._procfs = procfs_root
        self._mapped = Mapped(procfs_root) if has_fp8 else None
        self._identities = Identities(procfs_root, owners=owners)
        self._cpu = CpuUse(procfs_root)
        self._utilization = ProcessUtilization(handle, journal) if utilization else None
        self._sees_all = sees_the_hosts_processes()
        versions = VERSIONS[1:] if _has_wide_entries() else VERSIONS
        self._lists = {
            kind: Probe(
                journal,
                f"{kind}_processes",
                [_list_call(f"{call}{version}", handle) for version in versions],
            )
            for kind, call in LISTS.items()
        }

    def read(
        self, gpu_instances: Iterable[int | None] | None
    ) -> dict[int | None, tuple[Process, ...]] | None:
        """Return the processes by share, or None if the driver does not report them.

        `gpu_instances` is None while MIG is off. Outside the host's pid namespace, where newer
        drivers leave out the processes of others, lists without an entry say nothing.
        """
        listed = {kind: read() for kind, read in self._lists.items()}
        if listed["compute"] is None or not (self._sees_all or any(listed.values())):
            return None
        shares = (None,) if gpu_instances is None else tuple(gpu_instances)
        found: dict[int | None, list[Process]] = {share: [] for share in shares}
        pids = _largest(entry for entries in listed.values() for entry in entries or ())
        who = self._identities.of(pids)
        whose = memberships(self._procfs, pids)
        cpu = self._cpu.of(pids, time.monotonic())
        computing = {entry.pid for kind in COMPUTE_KINDS for entry in listed[kind] or ()}
        lists = {pid: allowed_cpus(self._procfs, pid) for pid in pids & computing}
        engines: Mapping[int, bool | None] = {}
        if self._mapped is not None:
            engines = self._mapped.of(pids & computing, self._journal.now)
        utilization = self._read_utilization(listed, who, gpu_instances)
        for kind, entries in listed.items():
            for entry in entries or ():
                share = None if gpu_instances is None else entry.gpuInstanceId
                if share in found:
                    pid = entry.pid
                    identity = who.get(pid, UNKNOWN)
                    found[share].append(
                        Process(
                            pid=pid,
                            kind=kind,
                            used_bytes=plausible.USED_BYTES(entry.usedGpuMemory),
                            command=identity.command,
                            owner=identity.owner,
                            work_class=identity.work_class,
                            membership=whose.get(pid),
                            sm_utilization_ratio=utilization.get(pid),
                            cpu_cores=cpu.get(pid),
                            cpu_list=lists.get(pid),
                            transformer_engine=engines.get(pid) if kind in COMPUTE_KINDS else None,
                        )
                    )
        return {share: tuple(processes) for share, processes in found.items()}

    def _read_utilization(
        self,
        listed: Mapping[str, list[Any] | None],
        who: Mapping[int, Identity],
        gpu_instances: Iterable[int | None] | None,
    ) -> Mapping[int, float]:
        """Return the share of the SM time by PID; empty if that is switched off."""
        if self._utilization is None:
            return {}
        if gpu_instances is not None:
            self._journal.absent(GROUP, "mig")
            return {}
        with_mps = bool(listed["mps"]) or any(
            (identity.command or "").startswith(MPS_SERVER) for identity in who.values()
        )
        return self._utilization.read(who.keys(), complete=not with_mps)


def _largest(entries: Iterable[Any]) -> set[int]:
    """Return the processes that are looked up, by PID."""
    by_size = sorted(entries, key=lambda entry: -(plausible.USED_BYTES(entry.usedGpuMemory) or 0))
    return set(islice(dict.fromkeys(entry.pid for entry in by_size), MOST_LOOKED_UP))


def _list_call(function: str, handle: Any) -> Callable[[], list[Any]]:
    array = GrowingArray(pynvml.c_nvmlProcessInfo_v2_t)

    def fill(entries: Any, count: c_uint) -> int:
        code: int = pynvml._nvmlGetFunctionPointer(function)(handle, byref(count), entries)
        return code

    return lambda: array.read(fill)


def _has_wide_entries() -> bool:
    """Return whether this driver's ``_v3`` lists have entries of 32 bytes instead of 24, as around
    driver 530, which its symbols show (nvitop, api/libnvml.py)."""
    return _exported("nvmlDeviceGetConfComputeMemSizeInfo") and not _exported(
        "nvmlDeviceGetRunningProcessDetailList"
    )


def _exported(symbol: str) -> bool:
    try:
        pynvml._nvmlGetFunctionPointer(symbol)
    except pynvml.NVMLError:
        return False
    return True


def _now() -> int:
    return int(time.time() * 1e6)
