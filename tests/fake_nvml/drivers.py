# SPDX-License-Identifier: Apache-2.0
"""Which of the symbols that are asked for older drivers lack (nvml.h of their CUDA releases)."""

from __future__ import annotations

# CUDA 12.4
DRIVER_550 = (
    *("nvmlDeviceGetFanSpeedRPM", "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetTemperatureV"),
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
)

# CUDA 12.2
DRIVER_535 = (
    *DRIVER_550,
    *("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetPciInfoExt"),
    "nvmlDeviceGetSramEccErrorStatus",
)

# CUDA 11.4
DRIVER_470 = (
    *DRIVER_535,
    *(f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")),
    *("nvmlDeviceGetConfComputeMemSizeInfo", "nvmlSystemGetConfComputeState"),
    *("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetRunningProcessDetailList"),
    *("nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetNumFans", "nvmlDeviceGetNumGpuCores"),
    *("nvmlDeviceGetJpgUtilization", "nvmlDeviceGetOfaUtilization"),
    *("nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetMemoryInfo_v2"),
    *("nvmlGpmMetricsGet", "nvmlGpmMigSampleGet", "nvmlGpmQueryDeviceSupport"),
    *("nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet"),
)
