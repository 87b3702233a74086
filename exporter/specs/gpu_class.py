# SPDX-License-Identifier: Apache-2.0
"""The product class of a GPU, from its name.

The boost clock of the datasheet depends on it, which NVML does not report.
"""

from __future__ import annotations

import re
from typing import Literal

from exporter.model.reading import Device
from exporter.model.snapshot import MemoryUtilizationUse

GpuClass = Literal[
    "data_center", "workstation", "compact_workstation", "geforce", "laptop", "low_power", "module"
]
"""Compact workstation boards take one slot and up to 140 W; of low power are small-form-factor
boards and laptop GPUs with a Max-Q design."""

MODULE_CAPABILITIES = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (11, 0)})
"""Of Jetson and DRIVE modules, whose GPU has the system's memory. One name stands for modules with
different numbers of SMs ("Orin (nvgpu)", "NVIDIA Thor")."""
SYSTEM_MEMORY_CAPABILITIES = MODULE_CAPABILITIES | {(12, 1)}
"""GPUs without memory of their own: modules, and GB10, whose memory utilization is always 0."""
FIRST_WITH_CHECKED_MEMORY_UTILIZATION = (7, 0)

_DATA_CENTER_CAPABILITIES = frozenset({(6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (10, 3)})

# "GRID A100-1-5CME", "NVIDIA A40-48Q", "NVIDIA RTX 6000 Ada-12Q", "GRID V100D-32Q": a profile ends
# in its framebuffer in GB and the series (A, B, C or Q), with the MIG slices before it and the
# options behind it.
_VGPU = re.compile(r"^(?:NVIDIA )?GRID\b|-\d+[ABCQ](?:ME)?\d?(?:[ .+-]?GFX)?$")
_MIG = re.compile(r"\bMIG \d+[gc]\.")
_MINING = re.compile(r"^(?:NVIDIA )?(?:CMP\b|P10\d-)")

# The first that is found in the name decides; the names of laptop GPUs contain those of others.
_BY_NAME: tuple[tuple[re.Pattern[str], GpuClass], ...] = (
    (re.compile(r"\bServer Edition\b"), "data_center"),
    (re.compile(r"\bMax-Q Workstation Edition\b"), "workstation"),
    (re.compile(r"\b(?:SFF|Max-Q)\b"), "low_power"),
    (
        re.compile(
            r"\b(?:Laptop|Mobile|GeForce MX\d+|MX\d{3}|[GR]TX? \d{3,4}M|\d{3}M[X]?"
            r"|Quadro [A-Z]?\d{3,4}M)\b"
        ),
        "laptop",
    ),
    (re.compile(r"\bGeForce\b"), "geforce"),
    (re.compile(r"\bTITAN\b", re.IGNORECASE), "geforce"),
    (
        re.compile(r"\b(?:NVS|T\d{3,4}|RTX (?:A|PRO )?(?:400|500|[1-4]000)H?)\b"),
        "compact_workstation",
    ),
    (re.compile(r"\b(?:Quadro|RTX)\b"), "workstation"),
    (re.compile(r"^(?!PG\d)(?:Tesla|[A-Z]{1,2}\d{1,3}[A-Z]?(?=[ -]|$))"), "data_center"),
)


def is_part_of_a_gpu(device: Device) -> bool:
    """Return whether this is a vGPU, or a MIG device by its name: its share is not known, and the
    largest profile shares the GPU's time as well."""
    return (
        device.virtualized
        or _VGPU.search(device.name.strip()) is not None
        or _MIG.search(device.name) is not None
    )


def gpu_class(device: Device) -> GpuClass | None:
    """Return the class of this GPU; None where neither name nor architecture say which, and for a
    board for mining, whose arithmetic is cut in ways of its own."""
    name = device.name.strip().removeprefix("NVIDIA ")
    if device.compute_capability in MODULE_CAPABILITIES:
        return "module"
    if _MINING.search(name):
        return None
    for pattern, found in _BY_NAME:
        if pattern.search(name):
            return found
    return "data_center" if device.compute_capability in _DATA_CENTER_CAPABILITIES else None


def memory_utilization_use(device: Device) -> MemoryUtilizationUse | None:
    """Return the use of the driver's memory utilization for DRAM activity: bound, estimate or None.

    It was held against hardware counters on V100, T4 and B300, between which the other data-centre
    boards since Volta lie.
    """
    capability = device.compute_capability
    if capability in SYSTEM_MEMORY_CAPABILITIES:
        return None
    is_checked = (
        capability is not None
        and capability >= FIRST_WITH_CHECKED_MEMORY_UTILIZATION
        and gpu_class(device) == "data_center"
    )
    return "bound" if is_checked else "estimate"
