# SPDX-License-Identifier: Apache-2.0
"""One GPU model: a row of the spec file in base units; and the bandwidth of its PCIe link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DERIVED = "derived"
"""The key of derived ceilings, which no GPU model may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """One row of the spec file; None is not known, or not in the hardware."""

    key: str
    """Its key in the spec file."""
    product: str
    """The vendor's name."""
    names: list[str]
    """Names that NVML reports."""
    pci_id_texts: list[str] = field(default_factory=list)
    architecture: str
    chip: str | None = None
    capability_text: str
    sm_count: int | None = None
    cores_per_sm: int
    peak_clock_hertz: dict[str, float] = field(default_factory=dict)
    """By unit: tensor, vector, memory."""
    peak_flops_per_second: dict[str, float] = field(default_factory=dict)
    """By precision; dense, FMA = 2 operations."""
    derived_precisions: list[str] = field(default_factory=list)
    """The precisions whose peak is computed from SMs and clock, not published."""
    memory_bytes: float | None = None
    """The size in the GPU model's name, in decimal units."""
    memory_type: str | None = None
    memory_bus_width_bits: int | None = None
    memory_bandwidth_bytes_per_second: float | None = None
    nvlink_bandwidth_bytes_per_second: float | None = None
    """All links together, per direction; the next one too."""
    c2c_bandwidth_bytes_per_second: float | None = None
    pcie_generation: int | None = None
    pcie_lanes: int | None = None
    tdp_watts: float | None = None
    achievable_ratio: dict[str, float] = field(default_factory=dict)
    """By precision, and ``memory``: what the best public kernels reach of the peak."""
    achievable_sources: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    """Codes of the spec file's table of sources, or free text."""
    confidence: str | None = None
    """A, B or C, as the head of the spec file defines them."""
    note: str | None = None

    @property
    def pci_ids(self) -> tuple[int, ...]:
        """Device ids under vendor 10DE."""
        return tuple(int(pci_id, 16) for pci_id in self.pci_id_texts)

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Major and minor number."""
        major, minor = self.capability_text.split(".")
        return int(major), int(minor)

    @property
    def core_count(self) -> int | None:
        """FP32 (CUDA) cores of the whole GPU."""
        return None if self.sm_count is None else self.sm_count * self.cores_per_sm


def assumed_precision(
    peak_flops_per_second: Mapping[str, float], wanted: str | None = None
) -> str | None:
    """Return the precision that tensor work is counted in; None without tensor peaks.

    `wanted` ("bf16", "bf16_tensor") if there is such a peak, else what training mostly uses: bf16,
    and fp16 on hardware without it (Volta, Turing).
    """
    preferred = f"{(wanted or '').removesuffix('_tensor')}_tensor"
    for name in (preferred, "bf16_tensor", "fp16_tensor"):
        if name in peak_flops_per_second:
            return name
    return None


# Per lane in GB/s = transfers x encoding / 8 bits: 2.5 and 5 GT/s carry 8 of 10 bits, 8, 16 and
# 32 GT/s carry 128 of 130, and 64 GT/s carries 242 of the 256 bytes of each FLIT.
_LANE_BYTES_PER_SECOND = {
    1: 2.5e9 * 8 / 10 / 8,
    2: 5e9 * 8 / 10 / 8,
    3: 8e9 * 128 / 130 / 8,
    4: 16e9 * 128 / 130 / 8,
    5: 32e9 * 128 / 130 / 8,
    6: 64e9 * 242 / 256 / 8,
}


def pcie_bytes_per_second(generation: int | None, lanes: int | None) -> float | None:
    """Return the bytes per second and direction after line encoding, before packet headers: 63 GB/s
    for generation 5 with 16 lanes. None where either is not known."""
    lane = None if generation is None else _LANE_BYTES_PER_SECOND.get(generation)
    if lane is None or lanes is None or not 1 <= lanes <= 32:
        return None
    return lane * lanes
