# SPDX-License-Identifier: Apache-2.0
"""The specifications of one GPU model, in base units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DERIVED = "derived"
"""The key of derived ceilings, which no GPU model may have."""


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One row of the spec file; None is not known, or not in the hardware."""

    key: str
    product: str
    """The vendor's name."""
    names: tuple[str, ...]
    """Names that NVML reports."""
    pci_ids: tuple[int, ...]
    """Device ids under vendor 10DE."""
    architecture: str
    chip: str | None
    compute_capability: tuple[int, int]
    sm_count: int | None
    cores_per_sm: int
    peak_clock_hertz: Mapping[str, float]
    """By unit: tensor, vector, memory."""
    peak_flops_per_second: Mapping[str, float]
    """By precision; dense, FMA = 2 operations."""
    derived_precisions: tuple[str, ...]
    """The precisions whose peak is computed from SMs and clock, not published."""
    memory_bytes: float | None
    """The size in the GPU model's name, in decimal units."""
    memory_type: str | None
    memory_bus_width_bits: int | None
    memory_bandwidth_bytes_per_second: float | None
    nvlink_bandwidth_bytes_per_second: float | None
    """All links together, per direction; the next one too."""
    c2c_bandwidth_bytes_per_second: float | None
    pcie_generation: int | None
    pcie_lanes: int | None
    tdp_watts: float | None
    achievable_ratio: Mapping[str, float]
    """By precision, and ``memory``: what the best public kernels reach of the peak."""
    achievable_sources: tuple[str, ...]
    sources: tuple[str, ...]
    """Codes of the spec file's table of sources, or free text."""
    confidence: str | None
    """A, B or C, as the head of the spec file defines them."""
    note: str | None

    @property
    def core_count(self) -> int | None:
        """FP32 (CUDA) cores of the whole GPU."""
        return None if self.sm_count is None else self.sm_count * self.cores_per_sm


def assumed_precision(
    peak_flops_per_second: Mapping[str, float], wanted: str | None = None
) -> str | None:
    """Return the precision that tensor work is counted in; None without tensor peaks.

    `wanted` is a tensor precision with or without ``_tensor`` ("bf16", "bf16_tensor"); it is
    passed over where these peaks lack it. The default is what training mostly uses: bf16, and
    fp16 on hardware without it (Volta, Turing).
    """
    preferred: tuple[str, ...] = (
        () if wanted is None else (f"{wanted.removesuffix('_tensor')}_tensor",)
    )
    for name in (*preferred, "bf16_tensor", "fp16_tensor"):
        if name in peak_flops_per_second:
            return name
    return None
