# SPDX-License-Identifier: Apache-2.0
"""Which GPUs are asleep, from sysfs: a driver call would wake them."""

from __future__ import annotations

import os
import re

ASLEEP = frozenset({"suspended", "suspending"})
"""Runtime power states of Linux (Documentation/power/runtime_pm.rst)."""
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def is_suspended(sysfs: str, address: str) -> bool:
    """Return whether the device at a PCI address is asleep; False if sysfs has no state of it.

    The address may be written as sysfs does (0000:01:00.0) or as NVML does (00000000:01:00.0).
    """
    domain, _, rest = address.partition(":")
    try:
        name = f"{int(domain, 16):04x}:{rest.lower()}"
    except ValueError:
        return False
    if not _ADDRESS.fullmatch(name):
        return False
    try:
        with open(f"{sysfs}/bus/pci/devices/{name}/power/runtime_status", "rb") as file:
            return file.read(32).decode("ascii", "replace").strip() in ASLEEP
    except OSError:
        return False


def gpu_addresses(sysfs: str) -> tuple[str, ...]:
    """Return the PCI addresses of the GPUs that NVIDIA's driver has, sorted."""
    try:
        names = os.listdir(f"{sysfs}/bus/pci/drivers/nvidia")
    except OSError:
        return ()
    return tuple(sorted(filter(_ADDRESS.fullmatch, names)))
