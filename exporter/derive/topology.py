# SPDX-License-Identifier: Apache-2.0
"""How the GPUs of a node are linked with each other, and how far a process is from its GPU.

The words are those of ``nvidia-smi topo -m``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from exporter.model.reading import NVSWITCH, UNKNOWN_END, Device, Process
from exporter.model.snapshot import Gpu, Peer

MOST_GPUS = 16
"""A node with more has no pairs: their number grows with its square."""
NVLINK = "NV"
PCIE_LINKS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Slower and slower: through one PCIe switch, several, a host bridge, two, two NUMA nodes."""
MOST_CPUS = 8192
_CPU_LIST = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a GPU is; it can be compared with where it was at the last tick."""

    index: int
    uuid: str
    address: str | None
    path: tuple[str, ...]
    node: int | None
    ends: tuple[tuple[str, int], ...]
    """Its NVLinks, by what is at their other end."""
    fabric: tuple[str | None, int | None]

    def nvlinks(self, end: str | None) -> int:
        return sum(count for name, count in self.ends if name == end)


def peers(gpus: Iterable[Gpu]) -> Mapping[str, tuple[Peer, ...]]:
    """Return the peers of each GPU by its UUID; the same objects while nothing changes."""
    return _peers(tuple(map(_place, gpus)))


def _place(gpu: Gpu) -> _Place:
    device, health = gpu.device, gpu.health
    return _Place(
        device.index,
        device.uuid,
        None if device.pci_bus_id is None else device.pci_bus_id.upper(),
        device.pci_path,
        device.numa_affinity,
        tuple(sorted(device.nvlink_ends.items())),
        (None, None) if health is None else (health.fabric_cluster_uuid, health.fabric_clique),
    )


@lru_cache(maxsize=4)
def _peers(places: tuple[_Place, ...]) -> Mapping[str, tuple[Peer, ...]]:
    if not 1 < len(places) <= MOST_GPUS:
        return {}
    return {
        one.uuid: tuple(
            Peer(other.index, other.uuid, link)
            for other in places
            if other is not one and (link := _link(one, other)) is not None
        )
        for one in places
    }


def _link(one: _Place, other: _Place) -> str | None:
    """Return the link between two GPUs; None if it is not known."""
    count = _nvlinks(one, other)
    return f"{NVLINK}{count}" if count else None if count is None else _common(one, other)


def _nvlinks(one: _Place, other: _Place) -> int | None:
    """Return how many NVLinks two GPUs have between them, or each to the switches of one fabric.

    Both have to say so: in a virtual machine an address may be that of another GPU.
    """
    direct = min(one.nvlinks(other.address), other.nvlinks(one.address))
    apart = None not in (*one.fabric, *other.fabric) and one.fabric != other.fabric
    count = direct or (0 if apart else min(one.nvlinks(NVSWITCH), other.nvlinks(NVSWITCH)))
    return None if not count and (_may_lead(one, other) or _may_lead(other, one)) else count


def _may_lead(one: _Place, other: _Place) -> bool:
    """Return whether an NVLink of a GPU, whose other end is not known, may lead to another one."""
    return one.nvlinks(UNKNOWN_END) > 0 and any(
        map(other.nvlinks, (UNKNOWN_END, NVSWITCH, one.address))
    )


def _common(one: _Place, other: _Place) -> str | None:
    """Return how far up in the PCI tree the way from one GPU to another leads."""
    if not (one.path and other.path):
        return None
    shared = 0
    for here, there in zip(one.path, other.path, strict=False):
        if here != there:
            break
        shared += 1
    if shared == 0:  # two host bridges
        nodes = one.node, other.node
        return None if None in nodes else "NODE" if one.node == other.node else "SYS"
    if shared == 1:
        return "PHB"
    # A switch is a port above, and one below for each GPU.
    return "PIX" if max(len(one.path), len(other.path)) - shared <= 2 else "PXB"


def slowest_link(gpus: Collection[Gpu]) -> str | None:
    """Return the slowest link between any two of these GPUs; None if one is not known."""
    links = [
        {peer.uuid: peer.link for peer in one.peers}.get(other.device.uuid)
        for one, other in combinations(gpus, 2)
    ]
    known = [link for link in links if link is not None]
    return max(known, key=_slowness, default=None) if len(known) == len(links) else None


def _slowness(link: str) -> int:
    """Return a number that is the greater the slower the link; that of NVLinks is negative."""
    return PCIE_LINKS.index(link) if link in PCIE_LINKS else -int(link.removeprefix(NVLINK))


def numa_misaligned_ratio(process: Process, device: Device) -> float | None:
    """Return the share of the CPUs a process may run on that are not of its GPU's NUMA node."""
    allowed, near = _cpus(process.cpu_list), _cpus(device.cpu_affinity)
    if not near or device.cpus_elsewhere is None:
        return None
    far = allowed & _cpus(device.cpus_elsewhere)
    online = far | allowed & near  # the list also has CPUs that could be plugged in
    return len(far) / len(online) if online else None


@lru_cache(maxsize=256)
def _cpus(text: str | None) -> frozenset[int]:
    """Return the CPUs in a list of the kernel; none if it is not one."""
    if text is None or not _CPU_LIST.fullmatch(text):
        return frozenset()
    ends = (part.partition("-") for part in text.split(","))
    return frozenset(
        cpu
        for first, _, last in ends
        for cpu in range(int(first), min(int(last or first) + 1, MOST_CPUS))
    )
