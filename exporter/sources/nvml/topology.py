# SPDX-License-Identifier: Apache-2.0
"""Where a GPU is: its NUMA node and CPUs, its place in the PCI tree, the ends of its NVLinks.

Each GPU says this of itself only, and `exporter.derive.topology` makes pairs of it: a driver call
that names two GPUs (nvmlDeviceGetTopologyCommonAncestor) hangs or fails where either of them does.
CPUs are taken from sysfs, as the driver's answer depends on the cpuset of who asks
(rapidsai/dask-cuda#1358).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any

import pynvml

from exporter.model.reading import NVSWITCH, UNKNOWN_END
from exporter.sources.nvml.probe import code_of, raise_if_gone
from exporter.sources.proc.pci import device_folder
from exporter.sources.reading_state import Journal

LONGEST_LIST = 4096
NODES = "devices/system/node"


class NvlinkEnds:
    """What is at the other end of one GPU's NVLinks; a link is asked for it until it says so."""

    def __init__(self, handle: Any, journal: Journal) -> None:
        self._handle = handle
        self._journal = journal
        self._known: dict[int, str] = {}
        """By link."""

    def read(self, links: int) -> dict[str, int]:
        """Return how many of the first `links` NVLinks are active, by what is at their other end.

        Raises:
            DeviceGone: the GPU is lost, removed or needs a reset.
            LibraryUnavailable: the library must be initialised again.
        """
        return dict(Counter(end for end in map(self._end, range(links)) if end is not None))

    def _end(self, link: int) -> str | None:
        """Return what is at the other end of an NVLink; None if the link is inactive."""
        self._journal.progress()
        try:
            if not pynvml.nvmlDeviceGetNvLinkState(self._handle, link):
                return None
            if link not in self._known:
                kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(self._handle, link)
                if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN:
                    return UNKNOWN_END
                self._known[link] = (
                    NVSWITCH
                    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
                    else str(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(self._handle, link).busId)
                )
        except pynvml.NVMLError as error:
            raise_if_gone(code_of(error))
            return UNKNOWN_END
        return self._known[link]


def placed(sysfs: str, address: str) -> dict[str, Any]:
    """Return the members of `Device` that sysfs knows of the GPU at this PCI address."""
    folder = device_folder(sysfs, address)
    if folder is None:
        return {}
    parts = os.path.realpath(folder).split("/")
    roots = [at for at, part in enumerate(parts) if re.fullmatch(r"pci[0-9a-f]+:[0-9a-f]+", part)]
    found: dict[str, Any] = {"pci_path": tuple(parts[roots[-1] :])} if roots else {}
    nodes = _nodes(sysfs)
    node = _text(f"{folder}/numa_node")
    if node == "-1" and len(nodes) == 1:  # so it says where firmware names no node
        [node] = nodes
    if node in nodes:
        cpus = {name: _text(f"{sysfs}/{NODES}/node{name}/cpulist") for name in nodes}
        found |= {
            "numa_affinity": int(node),
            "cpu_affinity": cpus.pop(node),
            "cpus_elsewhere": ",".join(filter(None, cpus.values())),
        }
    return found


def _nodes(sysfs: str) -> list[str]:
    """Return the numbers of the NUMA nodes that are online; empty if sysfs does not list them."""
    try:
        names = os.listdir(f"{sysfs}/{NODES}")
    except OSError:
        return []
    return sorted((each[4:] for each in names if re.fullmatch(r"node\d+", each)), key=int)


def _text(path: str) -> str:
    """Return what a short file of sysfs says; empty if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(LONGEST_LIST).strip()
    except OSError:
        return ""
