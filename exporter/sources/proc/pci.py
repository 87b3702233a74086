# SPDX-License-Identifier: Apache-2.0
"""GPUs as sysfs has them: how many are on the PCI bus, which are asleep, and where each is.

A driver call would wake one that is asleep, and names near CPUs only as far as the caller may use
them (rapidsai/dask-cuda#1358).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exporter.clock import Clock

NVIDIA_VENDOR = 0x10DE
DISPLAY_CLASS = 0x03
"""The class of graphics cards and 3D controllers; a GPU's sound and USB functions have others."""

BUS_INTERVAL_SECONDS = 60.0
"""A node may have hundreds of PCI functions, so they are not counted more often."""
ASLEEP = frozenset({"suspended", "suspending"})
"""Runtime power states of Linux (Documentation/power/runtime_pm.rst)."""
LONGEST_TEXT = 4096
_BELOW_ROOT = re.compile(r".*/(pci[0-9a-f]+:[0-9a-f]+/.*)")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class DeviceCounts:
    """The counts by place (pci, driver, nvml); written by one thread, read by any."""

    def __init__(self, sysfs: str, procfs: str, clock: Clock) -> None:
        """Take the paths of the host's /sys and /proc."""
        self._sysfs = Path(sysfs)
        self._procfs = Path(procfs)
        self._clock = clock
        self._due = float("-inf")
        self._counts: Mapping[str, int] = {}

    def count(self, nvml: int | None) -> None:
        """Take NVML's count (None: not known); count on the bus and in the driver every minute."""
        counts: dict[str, int | None] = {**self._counts, "nvml": nvml}
        if self._clock.monotonic() >= self._due:
            self._due = self._clock.monotonic() + BUS_INTERVAL_SECONDS
            counts |= {"pci": pci_gpus(self._sysfs), "driver": driver_gpus(self._procfs)}
        self._counts = {where: count for where, count in counts.items() if count is not None}

    def read(self) -> Mapping[str, int]:
        """Return the counts that are known, by pci, driver and nvml."""
        return self._counts


def pci_gpus(sysfs: Path) -> int | None:
    """Return how many NVIDIA GPUs are on the PCI bus; None if sysfs does not list devices."""
    try:
        functions = list((sysfs / "bus/pci/devices").iterdir())
    except OSError:
        return None
    return sum(1 for function in functions if _is_gpu(function))


def driver_gpus(procfs: Path) -> int | None:
    """Return how many GPUs the kernel driver has; None if it is not loaded or not visible."""
    try:
        return sum(1 for _ in (procfs / "driver/nvidia/gpus").iterdir())
    except OSError:
        return None


def _is_gpu(function: Path) -> bool:
    return (
        _number(function / "vendor") == NVIDIA_VENDOR
        and (_number(function / "class") or 0) >> 16 == DISPLAY_CLASS
    )


def _number(file: Path) -> int | None:
    try:
        return int(_text(file), 16)
    except ValueError:  # gone since the listing
        return None


def _text(path: str | Path) -> str:
    """Return the text of a short file; empty if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(LONGEST_TEXT).strip()
    except OSError:
        return ""


def is_suspended(sysfs: str, address: str) -> bool:
    """Return whether the device at a PCI address is asleep; False if sysfs has no state of it."""
    folder = device_folder(sysfs, address)
    return folder is not None and _text(f"{folder}/power/runtime_status") in ASLEEP


def placed(sysfs: str, address: str) -> dict[str, Any]:
    """Return the members of `Device` that sysfs knows of the GPU at this PCI address."""
    folder, nodes = device_folder(sysfs, address), f"{sysfs}/devices/system/node"
    if folder is None:
        return {}
    path = _BELOW_ROOT.fullmatch(os.path.realpath(folder))
    node = _text(f"{folder}/numa_node")
    if node == "-1" and _text(f"{nodes}/online") == "0":  # the only one; firmware need not name it
        node = "0"
    return {
        "pci_path": tuple(path[1].split("/")) if path else (),
        "numa_affinity": int(node) if node.isdecimal() else None,
        "cpu_affinity": _text(f"{nodes}/node{node}/cpulist") or None,
    }


def device_folder(sysfs: str, address: str) -> str | None:
    """Return where sysfs has the device at a PCI address, which may be written as NVML does
    (00000000:01:00.0), if it has; None for another text."""
    domain, _, rest = address.partition(":")
    try:
        name = f"{int(domain, 16):04x}:{rest.lower()}"
    except ValueError:
        return None
    return f"{sysfs}/bus/pci/devices/{name}" if _ADDRESS.fullmatch(name) else None


def gpu_addresses(sysfs: str) -> tuple[str, ...]:
    """Return the PCI addresses of the GPUs that NVIDIA's driver has, sorted."""
    try:
        names = os.listdir(f"{sysfs}/bus/pci/drivers/nvidia")
    except OSError:
        return ()
    return tuple(sorted(filter(_ADDRESS.fullmatch, names)))
