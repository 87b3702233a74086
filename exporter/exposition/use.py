# SPDX-License-Identifier: Apache-2.0
"""The catalogue's families that carry what the driver says of the use of a GPU and its memory."""

from __future__ import annotations

from exporter.exposition.family import Family, Label, counter, gauge

_ENGINE_MEANING = "Share of time in which the {} was busy, over the driver's own sampling period."

USE: tuple[Family, ...] = (
    gauge(
        "gpu_utilization_ratio",
        "ratio",
        "share",
        "core",
        "Share of time with at least one kernel resident, over the last poll interval; says "
        "nothing about how much of the GPU that kernel used. Absent under MIG.",
        "mean of nvmlDeviceGetSamples (GPU utilization), else nvmlDeviceGetUtilizationRates",
    ),
    gauge(
        "gpu_memory_controller_utilization_ratio",
        "ratio",
        "share",
        "full",
        "Share of time in which device memory was read or written, whatever the amount.",
        "nvmlDeviceGetSamples (memory utilization), else nvmlDeviceGetUtilizationRates",
    ),
    gauge(
        "gpu_encoder_utilization_ratio",
        "ratio",
        "board",
        "full",
        _ENGINE_MEANING.format("video encoder"),
        "nvmlDeviceGetEncoderUtilization",
    ),
    gauge(
        "gpu_decoder_utilization_ratio",
        "ratio",
        "board",
        "full",
        _ENGINE_MEANING.format("video decoder"),
        "nvmlDeviceGetDecoderUtilization",
    ),
    gauge(
        "gpu_jpeg_utilization_ratio",
        "ratio",
        "board",
        "full",
        _ENGINE_MEANING.format("JPEG decoder"),
        "nvmlDeviceGetJpgUtilization",
    ),
    gauge(
        "gpu_ofa_utilization_ratio",
        "ratio",
        "board",
        "full",
        _ENGINE_MEANING.format("optical flow accelerator"),
        "nvmlDeviceGetOfaUtilization",
    ),
    counter(
        "gpu_busy_seconds_total",
        "seconds",
        "share",
        "core",
        "Time with at least one kernel resident: the integral of gpu_utilization_ratio.",
        "the driver's utilization samples, else the poll, integrated since the exporter started",
    ),
    counter(
        "gpu_observed_seconds_total",
        "seconds",
        "share",
        "core",
        "Time over which the integrals ran: utilization for gpu_busy_seconds_total, activity for "
        "the hardware counters; divide rates by its rate.",
        "host clock between reads no more than 3 poll intervals apart",
        Label("reading", ("utilization", "activity")),
    ),
    gauge(
        "gpu_memory_total_bytes",
        "bytes",
        "share",
        "core",
        "Device memory installed, or given to the MIG instance.",
        "nvmlDeviceGetMemoryInfo",
    ),
    gauge(
        "gpu_memory_used_bytes",
        "bytes",
        "share",
        "core",
        "Device memory allocated; without the reserved part where the driver tells them apart.",
        "nvmlDeviceGetMemoryInfo (v2, else v1)",
    ),
    gauge(
        "gpu_memory_free_bytes",
        "bytes",
        "share",
        "core",
        "Device memory that can be allocated.",
        "nvmlDeviceGetMemoryInfo",
    ),
    gauge(
        "gpu_memory_reserved_bytes",
        "bytes",
        "share",
        "core",
        "Device memory that driver and firmware keep for themselves.",
        "nvmlDeviceGetMemoryInfo (v2)",
    ),
    gauge(
        "gpu_processes",
        "",
        "share",
        "core",
        "Processes that the driver lists; one that uses both CUDA and graphics is in two rows.",
        "nvmlDeviceGetComputeRunningProcesses, GraphicsRunningProcesses and "
        "MPSComputeRunningProcesses, at the slow cadence",
        Label("type", ("compute", "graphics", "mps"), full_values=("graphics", "mps")),
    ),
    gauge(
        "gpu_process_memory_bytes",
        "bytes",
        "share",
        "full",
        "Device memory of each process, the largest ones only; off unless enabled.",
        "the driver's process lists, at the slow cadence; command and owner from /proc",
        Label("pid"),
        Label("command", meaning="name of the command, never its arguments"),
        Label("owner", meaning="user who runs it"),
    ),
)
