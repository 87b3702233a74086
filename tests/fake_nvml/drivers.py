# SPDX-License-Identifier: Apache-2.0
"""Which of the symbols that are asked for older drivers lack (nvml.h of their CUDA releases)."""

from __future__ import annotations

# CUDA 12.4
DRIVER_550 = (
    "nvmlDeviceGetFanSpeedRPM",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
)

# CUDA 12.2
DRIVER_535 = (
    *DRIVER_550,
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetPciInfoExt",
    "nvmlDeviceGetSramEccErrorStatus",
)

# CUDA 11.4
DRIVER_470 = (
    *DRIVER_535,
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetConfComputeMemSizeInfo",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetJpgUtilization",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetNumFans",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetOfaUtilization",
    "nvmlDeviceGetRunningProcessDetailList",
    "nvmlGpmMetricsGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
    "nvmlSystemGetConfComputeState",
)
