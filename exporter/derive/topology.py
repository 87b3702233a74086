# SPDX-License-Identifier: Apache-2.0
"""How the GPUs of a node are linked with each other, and how far a process is from its GPU.

The words are those of ``nvidia-smi topo -m``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from itertools import takewhile

from exporter.model.reading import NVSWITCH, UNKNOWN_END, Device, Health, Process
from exporter.model.snapshot import Gpu, Peer

MOST_GPUS = 16
"""A node with more has no pairs: their number grows with its square."""
MOST_CPUS = 8192
_CPU_LIST = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*")


def peers(gpus: Collection[Gpu]) -> dict[str, tuple[Peer, ...]]:
    """Return the peers of each GPU by its UUID."""
    if len(gpus) > MOST_GPUS:
        return {}
    return {
        one.device.uuid: tuple(
            Peer(other.device.index, other.device.uuid, link)
            for other in gpus
            if other is not one and (link := _link(one, other)) is not None
        )
        for one in gpus
    }


def _link(one: Gpu, other: Gpu) -> str | None:
    """Return the link between two GPUs; None if it is not known.

    Both ends have to name an NVLink: in a guest an address may be that of another GPU.
    """
    here, there = one.device.nvlink_ends, other.device.nvlink_ends
    direct = min(
        here.get(other.device.pci_bus_id or "", 0), there.get(one.device.pci_bus_id or "", 0)
    )
    switched = min(here.get(NVSWITCH, 0), there.get(NVSWITCH, 0))
    count = direct or (0 if _on_two_fabrics(one.health, other.health) else switched)
    if count:
        return f"NV{count}"
    unknown = _may_lead(one.device, other.device) or _may_lead(other.device, one.device)
    return None if unknown else _common(one.device, other.device)


def _on_two_fabrics(one: Health | None, other: Health | None) -> bool:
    """Return whether two GPUs are known to be on different fabrics, or cliques of one."""
    fabrics = {(each.fabric_cluster_uuid, each.fabric_clique) for each in (one, other) if each}
    return len(fabrics) == 2 and all(None not in fabric for fabric in fabrics)


def _may_lead(one: Device, other: Device) -> bool:
    """Return whether an NVLink of a GPU, whose other end is not known, may lead to another one."""
    takes = (UNKNOWN_END, NVSWITCH, one.pci_bus_id)
    return UNKNOWN_END in one.nvlink_ends and not other.nvlink_ends.keys().isdisjoint(takes)


def _common(one: Device, other: Device) -> str | None:
    """Return how far up in the PCI tree the way from one GPU to another leads: through one PCIe
    switch (PIX), several (PXB), a host bridge (PHB), two (NODE), two NUMA nodes (SYS)."""
    if not (one.pci_path and other.pci_path):
        return None
    pairs = zip(one.pci_path, other.pci_path, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if shared == 0:  # two host bridges
        nodes = one.numa_affinity, other.numa_affinity
        return None if None in nodes else "NODE" if nodes[0] == nodes[1] else "SYS"
    if shared == 1:
        return "PHB"
    # A switch is a port above, and one below for each GPU.
    return "PIX" if max(len(one.pci_path), len(other.pci_path)) - shared <= 2 else "PXB"


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
