# SPDX-License-Identifier: Apache-2.0
"""GPUs as sysfs has them: how many are on the PCI bus, and which are asleep.

A driver call would wake one that is asleep.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from exporter.clock import Clock

NVIDIA_VENDOR = 0x10DE
DISPLAY_CLASS = 0x03
"""The class of graphics cards and 3D controllers; a GPU's sound and USB functions have others."""

BUS_INTERVAL_SECONDS = 60.0
"""A node may have hundreds of PCI functions, so they are not counted more often."""
ASLEEP = frozenset({"suspended", "suspending"})
"""Runtime power states of Linux (Documentation/power/runtime_pm.rst)."""
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
        return int(file.read_text(encoding="ascii"), 16)
    except (OSError, ValueError):  # gone since the listing
        return None


def is_suspended(sysfs: str, address: str) -> bool:
    """Return whether the device at a PCI address is asleep; False if sysfs has no state of it."""
    folder = device_folder(sysfs, address)
    if folder is None:
        return False
    try:
        with open(f"{folder}/power/runtime_status", "rb") as file:
            return file.read(32).decode("ascii", "replace").strip() in ASLEEP
    except OSError:
        return False


def device_folder(sysfs: str, address: str) -> str | None:
    """Return where sysfs has the device at a PCI address, if it has; None for another text.

    The address may be written as sysfs does (0000:01:00.0) or as NVML does (00000000:01:00.0).
    """
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
