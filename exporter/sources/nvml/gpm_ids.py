# SPDX-License-Identifier: Apache-2.0
"""Which GPU Performance Monitor metrics are read, and the meaning of each (nvml.h)."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.sources.nvml import plausible

MIB = 2**20
PERCENTS: Mapping[int, str] = {
    1: "engine",
    2: "sm",
    3: "occupancy",
    4: "integer",
    5: "tensor",
    6: "dfma",
    7: "hmma",
    8: "dmma",
    9: "imma",
    10: "dram",
    11: "fp64",
    12: "fp32",
    13: "fp16",
}
ACTIVITIES = frozenset(PERCENTS.values())
ENGINE_PERCENTS: Mapping[str, tuple[int, ...]] = {
    "decoder": tuple(range(30, 38)),
    "jpeg": tuple(range(40, 48)),
    "ofa": (50, 51),
    "encoder": tuple(range(166, 170)),
}
"""One id per engine of that kind; the mean of those that answer is published."""
MIB_PER_SECOND: Mapping[int, str] = {
    20: "pcie_transmit_bytes",
    21: "pcie_receive_bytes",
    # nvml.h lists receive before transmit for NVLink, and the other way round for PCIe and C2C.
    60: "nvlink_receive_bytes",
    61: "nvlink_transmit_bytes",
    102: "c2c_transmit_bytes",
    103: "c2c_receive_bytes",
}
ELAPSED_CYCLES = 248
CYCLES: Mapping[int, str] = {
    249: "sm",
    250: "tensor",
    251: "dmma",
    252: "hmma",
    253: "imma",
    254: "dfma",
    257: "integer",
    258: "fp64",
    259: "fp32",
    260: "fp16",
}
"""Cumulative since boot; divided by the elapsed cycles they are the activities, exactly."""
CUMULATIVE_BYTES: Mapping[int, str] = {255: "pcie_transmit_bytes", 256: "pcie_receive_bytes"}
IDS = (
    *PERCENTS,
    *(number for ids in ENGINE_PERCENTS.values() for number in ids),
    *MIB_PER_SECOND,
    ELAPSED_CYCLES,
    *CYCLES,
    *CUMULATIVE_BYTES,
)
HIGHEST: Mapping[int, float] = {
    **dict.fromkeys(IDS, plausible.GPM_PERCENT.highest),
    **dict.fromkeys(MIB_PER_SECOND, plausible.GPM_MIB_PER_SECOND.highest),
    **dict.fromkeys((ELAPSED_CYCLES, *CYCLES, *CUMULATIVE_BYTES), plausible.GPM_TOTAL.highest),
}
"""A value above it is left out, as a negative one is."""
WHOLE_GPU_ONLY = frozenset({*MIB_PER_SECOND, *CUMULATIVE_BYTES})
"""Link traffic has no meaning for one MIG instance (NVIDIA/DCGM #88)."""
