# SPDX-License-Identifier: Apache-2.0
"""Machines with several GPUs: what the driver answers, the tree in /sys, and what is true of them.

The matrices are as ``nvidia-smi topo -m`` prints them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Machine:
    """One machine."""

    devices: Sequence[Mapping[str, Any]]
    """For the scenario."""
    paths: Sequence[str]
    """By GPU: where sysfs has it, below /sys/devices."""
    nodes: Sequence[int]
    """By GPU: its NUMA node."""
    cpus: Mapping[int, str]
    """By NUMA node."""
    matrix: str

    def write(self, sysfs: Path) -> str:
        """Write its part of /sys; return the path."""
        listed = sysfs / "bus/pci/devices"
        listed.mkdir(parents=True)
        for node, cpus in self.cpus.items():
            folder = sysfs / f"devices/system/node/node{node}"
            folder.mkdir(parents=True)
            (folder / "cpulist").write_text(f"{cpus}\n")
        if self.cpus:
            (sysfs / "devices/system/node/online").write_text(",".join(map(str, self.cpus)))
        for path, node in zip(self.paths, self.nodes, strict=True):
            folder = sysfs / "devices" / path
            folder.mkdir(parents=True)
            (folder / "numa_node").write_text(f"{node}\n")
            (listed / folder.name).symlink_to(folder)
        return str(sysfs)

    @property
    def rows(self) -> list[list[str]]:
        """The links of each GPU, with X for itself."""
        return [line.split() for line in self.matrix.strip().splitlines()]


def _devices(paths: Sequence[str], **answers: Any) -> list[dict[str, Any]]:
    return [{"pci_bus_id": path.rpartition("/")[2], **answers} for path in paths]


TWO_SOCKETS = {0: "0-55,112-167", 1: "56-111,168-223"}

_DGX = tuple(
    f"pci0000:{root:02x}/0000:{root:02x}:01.0/0000:{root + 1:02x}:00.0/0000:{root + 2:02x}:02.0"
    f"/0000:{gpu:02x}:00.0"
    for root, gpu in zip(
        (0x15, 0x37, 0x48, 0x59, 0x97, 0xB7, 0xC7, 0xD7),
        (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF),
        strict=True,
    )
)
DGX_H100 = Machine(
    _devices(_DGX),
    _DGX,
    (0, 0, 0, 0, 1, 1, 1, 1),
    TWO_SOCKETS,
    "\n".join(" ".join("X" if at == to else "NV18" for to in range(8)) for at in range(8)),
)
"""Each GPU below a PCIe switch of its own, all on NVSwitches; with the addresses and CPUs that
nvidia-smi prints on a DGX H100."""

_SWITCH = "pci0000:16/0000:16:02.0/0000:17:00.0"
_PCIE = (
    f"{_SWITCH}/0000:18:00.0/0000:19:00.0",
    f"{_SWITCH}/0000:18:04.0/0000:1a:00.0",
    f"{_SWITCH}/0000:18:08.0/0000:1b:00.0/0000:1c:00.0/0000:1d:00.0",
    "pci0000:16/0000:16:04.0/0000:20:00.0",
    "pci0000:30/0000:30:02.0/0000:31:00.0",
    "pci0000:97/0000:97:02.0/0000:98:00.0",
)
PCIE_BOX = Machine(
    _devices(_PCIE, product="l40s"),
    _PCIE,
    (0, 0, 0, 0, 0, 1),
    TWO_SOCKETS,
    """
    X    PIX  PXB  PHB  NODE SYS
    PIX  X    PXB  PHB  NODE SYS
    PXB  PXB  X    PHB  NODE SYS
    PHB  PHB  PHB  X    NODE SYS
    NODE NODE NODE NODE X    SYS
    SYS  SYS  SYS  SYS  SYS  X
    """,
)
"""Two sockets; the third GPU is below a second switch."""

_BRIDGED = tuple(
    f"pci0000:{bus - 1:02x}/0000:{bus - 1:02x}:01.0/0000:{bus:02x}:00.0"
    for bus in (0x17, 0x65, 0xCA, 0xE3)
)
BRIDGED_PAIRS = Machine(
    [
        {**device, "nvlink": {"links": 12, "speed_mbps": 25781, "remote": _BRIDGED[to][-12:]}}
        for device, to in zip(
            _devices(_BRIDGED, product="a100-pcie-40gb"), (1, 0, 3, 2), strict=True
        )
    ],
    _BRIDGED,
    (0, 0, 1, 1),
    TWO_SOCKETS,
    """
    X    NV12 SYS  SYS
    NV12 X    SYS  SYS
    SYS  SYS  X    NV12
    SYS  SYS  NV12 X
    """,
)
"""Two pairs of PCIe cards, each with NVLink bridges."""
