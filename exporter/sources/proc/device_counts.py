# SPDX-License-Identifier: Apache-2.0
"""How many GPUs the node has, as the PCI bus, the kernel driver and NVML count them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from exporter.clock import Clock

NVIDIA_VENDOR = 0x10DE
DISPLAY_CLASS = 0x03
"""The class of graphics cards and 3D controllers; a GPU's sound and USB functions have others."""

BUS_INTERVAL_SECONDS = 60.0
"""A node may have hundreds of PCI functions, so they are not counted more often."""


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
        return int(file.read_text(encoding="ascii"), 16)
    except (OSError, ValueError):  # gone since the listing
        return None
