# SPDX-License-Identifier: Apache-2.0
"""The catalogue's families that place work against its ceilings, and count idle time."""

from __future__ import annotations

from dataclasses import replace

from exporter.exposition.family import Family, Label, counter, gauge, info
from exporter.model.snapshot import LIMITERS, PRECISIONS

PRECISION = Label("precision", PRECISIONS)
PEAK_PRECISION = replace(PRECISION, full_values=("fp16", "bf16"))
CEILING_BASIS = Label("basis", ("spec", "achievable"), full_values=("achievable",))
ROOF_BASIS = Label("basis", ("spec", "clock", "achievable"))
LIMITER = Label("limiter", LIMITERS)

_FMA = "vector FLOPs are counted as if every instruction were an FMA"

ROOFLINE: tuple[Family, ...] = (
    gauge(
        "gpu_peak_flops_per_second",
        "flops_per_second",
        "share",
        "core",
        "Compute ceiling: dense, FMA = 2 operations, tensor rates with FP32 accumulation unless "
        "named fp16acc; int rows are operations, int8 without tensor is DP4A.",
        "spec: datasheet row of the spec file, else derived from NVML; achievable: x what the "
        "best public kernels reach",
        PEAK_PRECISION,
        CEILING_BASIS,
    ),
    gauge(
        "gpu_peak_memory_bandwidth_bytes_per_second",
        "bytes_per_second",
        "share",
        "core",
        "Device memory bandwidth ceiling.",
        "spec: datasheet row of the spec file, else memory clock x 2 x bus width / 8; achievable: "
        "x what the best public kernels reach",
        CEILING_BASIS,
    ),
    gauge(
        "gpu_peak_clock_hertz",
        "hertz",
        "share",
        "core",
        "Clock at which the spec ceilings hold; real clocks can exceed it.",
        "spec file, else the maximum clocks of NVML",
        Label("unit", ("tensor", "vector", "memory")),
    ),
    counter(
        "gpu_flops_total",
        "flops",
        "share",
        "core",
        f"Operations done by the pipes that are measured; {_FMA} (an upper estimate), tensor work "
        "at the assumed precision.",
        "derived: active cycles x FLOP per clock and SM, since the exporter started",
        PRECISION,
    ),
    counter(
        "gpu_flops_lower_total",
        "",
        "share",
        "full",
        "Operations done, at least: tensor work at the slowest precision of the hardware, no "
        "vector work.",
        "derived, since the exporter started",
    ),
    counter(
        "gpu_flops_upper_total",
        "",
        "share",
        "full",
        f"Operations done, at most: the fastest rates of the hardware; {_FMA}.",
        "derived, since the exporter started",
    ),
    counter(
        "gpu_dram_bytes_total",
        "bytes",
        "share",
        "core",
        "Bytes moved between device memory and GPU.",
        "derived: DRAM activity x memory clock x 2 x bus width / 8, since the exporter started",
    ),
    gauge(
        "gpu_flops_per_second",
        "flops_per_second",
        "share",
        "core",
        f"Operations per second over the last poll interval, all precisions together; {_FMA}.",
        "derived as gpu_flops_total",
    ),
    gauge(
        "gpu_flops_lower_per_second",
        "",
        "share",
        "full",
        "Operations per second over the last poll interval, at least.",
        "derived as gpu_flops_lower_total",
    ),
    gauge(
        "gpu_flops_upper_per_second",
        "",
        "share",
        "full",
        "Operations per second over the last poll interval, at most.",
        "derived as gpu_flops_upper_total",
    ),
    gauge(
        "gpu_dram_bytes_per_second",
        "bytes_per_second",
        "share",
        "full",
        "Bytes per second between device memory and GPU over the last poll interval.",
        "derived as gpu_dram_bytes_total",
    ),
    gauge(
        "gpu_arithmetic_intensity_flops_per_byte",
        "flops_per_byte",
        "share",
        "full",
        "Operations per byte of device memory traffic over the last poll interval.",
        "derived: gpu_flops_per_second / gpu_dram_bytes_per_second",
    ),
    gauge(
        "gpu_roof_ratio",
        "ratio",
        "share",
        "core",
        "How close the point is to its roof: 1 is on the roof; above 1 means that clocks exceed "
        "those of the basis.",
        "derived: max over units of activity x clock / clock of the basis, and of DRAM traffic / "
        "bandwidth, over the last poll interval",
        ROOF_BASIS,
    ),
    counter(
        "gpu_limited_seconds_total",
        "seconds",
        "share",
        "core",
        "Observed time by what limited it most.",
        "derived: the largest part of each poll interval, since the exporter started",
        LIMITER,
    ),
)

IDLE: tuple[Family, ...] = (
    gauge(
        "gpu_held",
        "",
        "share",
        "core",
        "1 while a compute process that is not on the ignore list is on this GPU, else 0.",
        "the driver's process list at the slow cadence; only where it cannot be read, memory in "
        "use",
    ),
    info(
        "gpu_holder_info",
        "share",
        "core",
        "Who holds this GPU: the process with the most memory of those that do; exactly one series "
        "while gpu_held is 1. Labels that are not known are empty.",
        "the driver's process list and /proc at the slow cadence; arguments and environment are "
        "looked at for the class only and never shown",
        Label("owner", meaning="name or number of the user; empty with --no-process.owner"),
        Label("command", meaning="name of the command, at most 32 bytes, never its arguments"),
        Label("class", ("training", "serving", "notebook", "display", "system", "other")),
    ),
    gauge(
        "gpu_last_busy_timestamp_seconds",
        "seconds",
        "share",
        "core",
        "Unix time at which the last interval ended that was not seen to be idle, or not seen "
        "at all; at first the start of observation.",
        "derived, each poll interval",
    ),
    counter(
        "gpu_idle_seconds_total",
        "seconds",
        "share",
        "core",
        "Time in intervals that were idle as a whole: no engine, SM, DRAM or video activity, and "
        "hardly any PCIe or NVLink traffic.",
        "derived, each poll interval, since the exporter started",
    ),
    counter(
        "gpu_held_idle_seconds_total",
        "seconds",
        "share",
        "core",
        "The part of gpu_idle_seconds_total in which a process held the GPU.",
        "derived, each poll interval, since the exporter started",
    ),
    counter(
        "gpu_idle_energy_joules_total",
        "joules",
        "share",
        "full",
        "Energy used in the time of gpu_idle_seconds_total.",
        "derived from gpu_energy_joules_total, since the exporter started",
    ),
)
