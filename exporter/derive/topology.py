# SPDX-License-Identifier: Apache-2.0
"""How the GPUs of a node are linked with each other, and how far a process is from its GPU.

The words are those of ``nvidia-smi topo -m``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

from exporter.model.reading import NVSWITCH, Device, Process
from exporter.model.snapshot import Peer

MOST_GPUS = 16
"""A node with more has no pairs: their number grows with its square."""
_CPU_LIST = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*")


def peers(devices: Collection[Device]) -> dict[str, tuple[Peer, ...]]:
    """Return the peers of each GPU by its UUID."""
    if len(devices) > MOST_GPUS:
        return {}
    return {
        one.uuid: tuple(
            Peer(other.index, other.uuid, link)
            for other in devices
            if other is not one and (link := _link(one, other)) is not None
        )
        for one in devices
    }


def _link(one: Device, other: Device) -> str | None:
    """Return the link between two GPUs; None if it is not known.

    Both ends have to name an NVLink: in a guest an address may be that of another GPU.
    """
    here, there = one.nvlink_ends, other.nvlink_ends
    if here is None or there is None:
        return None
    direct = min(here.get(other.pci_bus_id or "", 0), there.get(one.pci_bus_id or "", 0))
    count = direct or min(here.get(NVSWITCH, 0), there.get(NVSWITCH, 0))
    return f"NV{count}" if count else _common(one, other)


def _common(one: Device, other: Device) -> str | None:
    """Return how high in the PCI tree the path from one GPU to another goes: through one PCIe
    switch (PIX), several (PXB), a host bridge (PHB), two (NODE), two NUMA nodes (SYS)."""
    if not (one.pci_path and other.pci_path):
        return None
    shared = len({*one.pci_path} & {*other.pci_path})
    if shared == 0:  # two host bridges
        nodes = one.numa_affinity, other.numa_affinity
        return None if None in nodes else "NODE" if nodes[0] == nodes[1] else "SYS"
    if shared == 1:
        return "PHB"
    # A switch is a port above, and one below for each GPU.
    return "PIX" if max(len(one.pci_path), len(other.pci_path)) - shared <= 2 else "PXB"


def numa_misaligned_ratio(process: Process, device: Device) -> float | None:
    """Return the share of the CPUs that a process may use that are off its GPU's NUMA node."""
    allowed, near = _cpus(process.cpu_list), _cpus(device.cpu_affinity)
    return len(allowed - near) / len(allowed) if allowed and near else None


@lru_cache(maxsize=256)
def _cpus(text: str | None) -> frozenset[int]:
    """Return the CPUs in a list of the kernel; none if it is not one."""
    if text is None or not _CPU_LIST.fullmatch(text):
        return frozenset()
    ends = (part.partition("-") for part in text.split(","))
    return frozenset(
        cpu for first, _, last in ends for cpu in range(int(first), int(last or first) + 1)
    )
