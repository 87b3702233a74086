# SPDX-License-Identifier: Apache-2.0
"""Utilization of a GPU and its engines as the driver reports it, and memory in use."""

from __future__ import annotations

from operator import attrgetter

from exporter.exposition.family import Family, core_counter, core_gauge, gauge
from exporter.exposition.labels import Label, flag
from exporter.exposition.parts import MEMORY, TOTALS, UTILIZATION, VITALS

READING = Label("reading", ("utilization", "activity"))

FAMILIES: tuple[Family, ...] = (
    core_gauge(
        "gpu_utilization_ratio",
        "Share of time with at least one kernel resident, over the last poll interval; says "
        "nothing about how much of the GPU that kernel used. Absent under MIG.",
        "mean of nvmlDeviceGetSamples (GPU utilization), else nvmlDeviceGetUtilizationRates",
        UTILIZATION.one(lambda u: u.ratio),
    ),
    gauge(
        "gpu_memory_controller_utilization_ratio",
        "Share of time in which device memory was read or written, whatever the amount.",
        "nvmlDeviceGetSamples (memory utilization), else nvmlDeviceGetUtilizationRates",
        UTILIZATION.one(lambda u: u.memory_ratio),
    ),
    *(
        gauge(
            f"gpu_{engine}_utilization_ratio",
            f"Share of time in which the {words} was busy, over the driver's own sampling period.",
            f"nvmlDeviceGet{function}Utilization",
            VITALS.one(attrgetter(f"{engine}_ratio")),
        )
        for engine, words, function in (
            ("encoder", "video encoder", "Encoder"),
            ("decoder", "video decoder", "Decoder"),
            ("jpeg", "JPEG decoder", "Jpg"),
            ("ofa", "optical flow accelerator", "Ofa"),
        )
    ),
    core_counter(
        "gpu_busy_seconds_total",
        "Time with at least one kernel resident: the integral of gpu_utilization_ratio.",
        "the driver's utilization samples, else the poll, integrated since the exporter started",
        TOTALS.one(lambda t: t.busy_seconds),
    ),
    core_counter(
        "gpu_observed_seconds_total",
        "Time over which the integrals ran: utilization for gpu_busy_seconds_total, activity for "
        "the hardware counters, only while all of those that are published were read; divide rates "
        "by its rate.",
        "host clock between reads no more than 3 poll intervals apart",
        TOTALS.by_label(READING, lambda t: t.observed_seconds),
    ),
    core_gauge(
        "gpu_memory_total_bytes",
        "Device memory installed, or given to the MIG instance.",
        "nvmlDeviceGetMemoryInfo",
        MEMORY.one(lambda m: m.total_bytes),
    ),
    core_gauge(
        "gpu_memory_used_bytes",
        "Device memory allocated; without the reserved part where the driver reports that "
        "separately.",
        "nvmlDeviceGetMemoryInfo (v2, else v1)",
        MEMORY.one(lambda m: m.used_bytes),
    ),
    core_gauge(
        "gpu_memory_unified",
        "1 where the GPU has no memory of its own and gpu_memory_* are of the memory that it "
        "shares with the CPU, as the host counts it; absent elsewhere.",
        "/proc/meminfo: MemTotal, and MemTotal - MemAvailable as used",
        MEMORY.one(lambda m: flag(m.unified)),
    ),
    gauge(
        "gpu_memory_free_bytes",
        "Device memory that can be allocated.",
        "nvmlDeviceGetMemoryInfo",
        MEMORY.one(lambda m: m.free_bytes),
    ),
    gauge(
        "gpu_memory_reserved_bytes",
        "Device memory that driver and firmware keep for themselves.",
        "nvmlDeviceGetMemoryInfo (v2)",
        MEMORY.one(lambda m: m.reserved_bytes),
    ),
)
