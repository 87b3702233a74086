# SPDX-License-Identifier: Apache-2.0
"""Which processes the driver lists on a GPU, by share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ctypes import byref, c_uint
from itertools import islice
from typing import Any

import pynvml

from exporter.model.reading import Process
from exporter.model.workload import Membership
from exporter.sources.nvml import plausible
from exporter.sources.nvml.probe import Probe
from exporter.sources.nvml.process_utilization import GROUP, ProcessUtilization
from exporter.sources.proc.cgroup import memberships
from exporter.sources.proc.mapped import Mapped
from exporter.sources.proc.procfs import Identities, Identity, sees_the_hosts_processes
from exporter.sources.reading_state import Journal

NO_INSTANCE = 0xFFFFFFFF
LISTS: Mapping[str, str] = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}
COMPUTING = ("compute", "mps")
MPS_SERVER = "nvidia-cuda-mps"
"""How the name of its command begins, of which the kernel keeps 15 bytes."""
VERSIONS = ("_v3", "_v2")
SPARE_ENTRIES = 8
MOST_LOOKED_UP = 1024
"""Of a GPU, the largest: to read many more in /proc would take as long as a call that hangs."""
UNKNOWN = Identity()
ATTEMPTS = 5
"""How often a list that outgrew its array is read again, each time into one twice as large."""


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
        """Read the processes on a GPU; where it has FP8, also what they have loaded for it.

        With `utilization`, also how much of the SM time each of them had.
        """
        self._journal = journal
        self._procfs = procfs_root
        self._mapped = Mapped(procfs_root) if has_fp8 else None
        self._identities = Identities(procfs_root, owners=owners)
        self._utilization = ProcessUtilization(handle, journal) if utilization else None
        self._sees_all = sees_the_hosts_processes()
        versions = VERSIONS[1:] if _has_wide_entries() else VERSIONS
        self._lists = {
            kind: Probe(
                journal,
                f"{kind}_processes",
                [ProcessList(f"{call}{version}", handle).read for version in versions],
            )
            for kind, call in LISTS.items()
        }

    def read(
        self, gpu_instances: Iterable[int | None] | None
    ) -> dict[int | None, tuple[Process, ...]] | None:
        """Return the processes by share, or None if the driver does not report them.

        `gpu_instances` is None while MIG is off. Outside the host's pid namespace, newer drivers
        leave out the processes of others: there, lists without an entry say nothing.
        """
        listed = {kind: read() for kind, read in self._lists.items()}
        if listed["compute"] is None or not (self._sees_all or any(listed.values())):
            return None
        shares = (None,) if gpu_instances is None else tuple(gpu_instances)
        found: dict[int | None, list[Process]] = {share: [] for share in shares}
        pids = _largest(entry for entries in listed.values() for entry in entries or ())
        who = self._identities.of(pids)
        whose = memberships(self._procfs, pids)
        engines: Mapping[int, bool | None] = {}
        if self._mapped is not None:
            computing = {entry.pid for kind in COMPUTING for entry in listed[kind] or ()}
            engines = self._mapped.of(pids & computing, self._journal.now)
        utilization = self._read_utilization(listed, who, gpu_instances)
        for kind, entries in listed.items():
            for entry in entries or ():
                share = None if gpu_instances is None else _instance(entry.gpuInstanceId)
                if share in found:
                    pid = entry.pid
                    engine = engines.get(pid) if kind in COMPUTING else None
                    found[share].append(
                        _process(
                            kind,
                            entry,
                            who.get(pid, UNKNOWN),
                            whose.get(pid),
                            utilization.get(pid),
                            engine,
                        )
                    )
        return {share: tuple(processes) for share, processes in found.items()}

    def _read_utilization(
        self,
        listed: Mapping[str, list[Any] | None],
        who: Mapping[int, Identity],
        gpu_instances: Iterable[int | None] | None,
    ) -> Mapping[int, float]:
        """Return by PID how much of the SM time the processes had; nothing if that is not asked."""
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


def _process(
    kind: str,
    entry: Any,
    identity: Identity,
    member: Membership | None,
    sm_utilization_ratio: float | None,
    engine: bool | None,
) -> Process:
    return Process(
        pid=entry.pid,
        kind=kind,
        used_bytes=plausible.USED_BYTES(entry.usedGpuMemory),
        command=identity.command,
        owner=identity.owner,
        work_class=identity.work_class,
        membership=member,
        sm_utilization_ratio=sm_utilization_ratio,
        transformer_engine=engine,
    )


class ProcessList:
    """One of the driver's lists, read into an array that grows with it.

    pynvml reads the length first, and fails if the list has grown before its next call.
    """

    def __init__(self, function: str, handle: Any) -> None:
        self._function = function
        self._handle = handle
        self._array = (pynvml.c_nvmlProcessInfo_v2_t * SPARE_ENTRIES)()

    def read(self) -> list[Any]:
        """Return the entries, which are valid until the next read.

        Raises:
            pynvml.NVMLError: the driver refused, or the list grows faster than it can be read.
        """
        call = pynvml._nvmlGetFunctionPointer(self._function)
        code = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        for _ in range(ATTEMPTS):
            count = c_uint(len(self._array))
            code = call(self._handle, byref(count), self._array)
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            room = 2 * max(count.value, len(self._array)) + SPARE_ENTRIES
            self._array = (pynvml.c_nvmlProcessInfo_v2_t * room)()
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
        return list(self._array[: min(count.value, len(self._array))])


def _has_wide_entries() -> bool:
    """Return whether this driver's ``_v3`` lists have entries that the binding would misread.

    Around driver 530 an entry had 32 bytes instead of 24; such a driver is known by its symbols
    (nvitop, api/libnvml.py).
    """
    return _exported("nvmlDeviceGetConfComputeMemSizeInfo") and not _exported(
        "nvmlDeviceGetRunningProcessDetailList"
    )


def _exported(symbol: str) -> bool:
    try:
        pynvml._nvmlGetFunctionPointer(symbol)
    except pynvml.NVMLError:
        return False
    return True


def _instance(number: int) -> int | None:
    return None if number == NO_INSTANCE else number
