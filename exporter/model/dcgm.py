# SPDX-License-Identifier: Apache-2.0
"""DCGM's profiling fields: number, both generations of names, and the activity each of them is.

Numbers and names are those of dcgm_fields.h. The fields got new names in DCGM 4.6; dcgm-exporter
uses the old ones up to 4.8 and the new ones from 4.9 on. Values are ratios up to 1, or bytes per
second, even where a list of metrics calls them a counter.
"""

from __future__ import annotations

from typing import NamedTuple

MADE_HERE = "# Made by roofline-exporter from its own readings, not by DCGM."
"""The first line of our own page under DCGM's names, so that our DCGM source does not scrape it."""

PREFIX = "DCGM_FI_PROF_"
HIGHEST_RATIO = 1.25
"""The limit of a plausible ratio: a mean over cycles may be a little above 1."""
HIGHEST_RATE = 1e14
"""Fifty times NVLink 5, in bytes per second; DCGM's blank values, 2^47 and 9.22e18, are above."""


class ProfilingField(NamedTuple):
    """One of DCGM's profiling fields."""

    number: int
    legacy: str
    """Its name before DCGM 4.6, without PREFIX."""
    current: str
    """Its name since, without PREFIX."""
    activity: str
    """The field of `Activity`; fields of one kind are averaged."""

    @property
    def is_rate(self) -> bool:
        """Whether it is in bytes per second; else it is a ratio."""
        return self.activity.endswith("_bytes")

    @property
    def highest(self) -> float:
        """The highest value that it can have."""
        return HIGHEST_RATE if self.is_rate else HIGHEST_RATIO

    @property
    def names(self) -> tuple[str, ...]:
        """The names of both generations."""
        return tuple(dict.fromkeys((PREFIX + self.legacy, PREFIX + self.current)))


FIELDS = (
    ProfilingField(1001, "GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO", "engine"),
    ProfilingField(1002, "SM_ACTIVE", "SM_UTIL_RATIO", "sm"),
    ProfilingField(1003, "SM_OCCUPANCY", "SM_OCCUPANCY_RATIO", "occupancy"),
    ProfilingField(1004, "PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO", "tensor"),
    ProfilingField(1005, "DRAM_ACTIVE", "DRAM_UTIL_RATIO", "dram"),
    ProfilingField(1006, "PIPE_FP64_ACTIVE", "FP64_UTIL_RATIO", "fp64"),
    ProfilingField(1007, "PIPE_FP32_ACTIVE", "FP32_UTIL_RATIO", "fp32"),
    ProfilingField(1008, "PIPE_FP16_ACTIVE", "FP16_UTIL_RATIO", "fp16"),
    ProfilingField(1009, "PCIE_TX_BYTES", "PCIE_TX_BYTES", "pcie_transmit_bytes"),
    ProfilingField(1010, "PCIE_RX_BYTES", "PCIE_RX_BYTES", "pcie_receive_bytes"),
    ProfilingField(1011, "NVLINK_TX_BYTES", "NVLINK_TX_BYTES", "nvlink_transmit_bytes"),
    ProfilingField(1012, "NVLINK_RX_BYTES", "NVLINK_RX_BYTES", "nvlink_receive_bytes"),
    ProfilingField(1013, "PIPE_TENSOR_IMMA_ACTIVE", "IMMA_UTIL_RATIO", "imma"),
    ProfilingField(1014, "PIPE_TENSOR_HMMA_ACTIVE", "HMMA_UTIL_RATIO", "hmma"),
    ProfilingField(1015, "PIPE_TENSOR_DFMA_ACTIVE", "DFMA_UTIL_RATIO", "dfma"),
    ProfilingField(1016, "PIPE_INT_ACTIVE", "INT_UTIL_RATIO", "integer"),
)
"""The fields 1001 to 1016, by number. FP16 is without HMMA; DFMA is that of the tensor pipe. Link
traffic has no meaning for one MIG instance (NVIDIA/DCGM #88)."""

_MEDIA = ((1017, 8, "NVDEC", "decoder"), (1025, 8, "NVJPG", "jpeg"), (1033, 2, "NVOFA", "ofa"))
MEDIA_FIELDS = tuple(
    ProfilingField(first + n, f"{name}{n}_ACTIVE", f"{name}_UTIL_{n}_RATIO", activity)
    for first, engines, name, activity in _MEDIA
    for n in range(engines)
)
"""One field per engine of that kind; the mean of those that a GPU has is its activity."""
