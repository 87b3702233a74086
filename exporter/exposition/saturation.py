# SPDX-License-Identifier: Apache-2.0
"""The catalogue's families that say how saturated each unit is, and where time went."""

from __future__ import annotations

from exporter.exposition.family import Family, Label, counter, gauge
from exporter.model.snapshot import TIME_PARTS

PIPE = Label("pipe", ("tensor", "fp64", "fp32", "fp16", "int"))
TENSOR_OP = Label("op", ("hmma", "imma", "dmma", "dfma"))
RESOURCE = Label("resource", ("sm", "tensor", "fma", "fp64", "int", "dram"))
PART = Label("part", TIME_PARTS)

_OVER_POLL = "measured over the last poll interval."
_READABLE = (
    "of the units that can be read; a kernel limited by another unit (special functions, shared "
    "memory, issue slots) shows less"
)

SATURATION: tuple[Family, ...] = (
    gauge(
        "gpu_engine_active_ratio",
        "ratio",
        "share",
        "full",
        f"Share of time in which the graphics and compute engine was active, {_OVER_POLL}",
        "GPM 1",
    ),
    gauge(
        "gpu_sm_active_ratio",
        "ratio",
        "share",
        "full",
        f"Share of cycles with a warp resident on an SM, averaged over the SMs, {_OVER_POLL}",
        "GPM 249/248, else GPM 2",
    ),
    gauge(
        "gpu_sm_occupancy_ratio",
        "ratio",
        "share",
        "full",
        f"Resident warps over the most that fit; high occupancy is no saturation; {_OVER_POLL}",
        "GPM 3",
    ),
    gauge(
        "gpu_dram_active_ratio",
        "ratio",
        "share",
        "full",
        f"Share of cycles in which the memory interface moved data, {_OVER_POLL}",
        "GPM 10",
    ),
    gauge(
        "gpu_pipe_active_ratio",
        "ratio",
        "share",
        "full",
        f"Share of cycles in which a math pipe was busy, {_OVER_POLL}",
        "GPM 250 and 257-260 over 248, else GPM 4, 5, 11, 12, 13",
        PIPE,
    ),
    gauge(
        "gpu_tensor_op_active_ratio",
        "ratio",
        "share",
        "full",
        f"Share of cycles in which the tensor pipe ran a kind of operation, {_OVER_POLL}",
        "GPM 251-254 over 248, else GPM 6-9",
        TENSOR_OP,
    ),
    counter(
        "gpu_engine_active_seconds_total",
        "seconds",
        "share",
        "core",
        "Time in which the graphics and compute engine was active.",
        "integral of gpu_engine_active_ratio since the exporter started",
    ),
    counter(
        "gpu_sm_active_seconds_total",
        "seconds",
        "share",
        "core",
        "SM-active time, averaged over the SMs.",
        "integral of gpu_sm_active_ratio since the exporter started",
    ),
    counter(
        "gpu_dram_active_seconds_total",
        "seconds",
        "share",
        "core",
        "Time in which the memory interface moved data.",
        "integral of gpu_dram_active_ratio since the exporter started",
    ),
    counter(
        "gpu_pipe_active_seconds_total",
        "seconds",
        "share",
        "core",
        "Time in which a math pipe was busy; pipes run side by side, so rows can exceed the time "
        "that passed.",
        "integral of gpu_pipe_active_ratio since the exporter started",
        PIPE,
    ),
    counter(
        "gpu_tensor_op_active_seconds_total",
        "seconds",
        "share",
        "full",
        "Time in which the tensor pipe ran a kind of operation.",
        "integral of gpu_tensor_op_active_ratio since the exporter started",
        TENSOR_OP,
    ),
    gauge(
        "gpu_saturation_ratio",
        "ratio",
        "share",
        "core",
        f"How close the GPU is to a limit {_READABLE}. Only where measured and complete.",
        "derived: max of tensor, fp64, fma, int and DRAM activity over the last poll interval",
    ),
    counter(
        "gpu_saturation_seconds_total",
        "seconds",
        "share",
        "core",
        f"Saturation integrated over time, {_READABLE}.",
        "integral of gpu_saturation_ratio since the exporter started",
    ),
    gauge(
        "gpu_saturation_lower_ratio",
        "ratio",
        "share",
        "core",
        f"Saturation is at least this, {_READABLE}.",
        "derived: max of the lower bounds of each unit over the last poll interval",
    ),
    gauge(
        "gpu_saturation_upper_ratio",
        "ratio",
        "share",
        "core",
        f"Saturation is at most this, {_READABLE}.",
        "derived: max of the upper bounds of each unit over the last poll interval",
    ),
    gauge(
        "gpu_resource_saturation_lower_ratio",
        "ratio",
        "share",
        "full",
        "Activity of a unit that is not measured is at least this.",
        "estimated from the driver's utilization over the last poll interval",
        RESOURCE,
    ),
    gauge(
        "gpu_resource_saturation_upper_ratio",
        "ratio",
        "share",
        "full",
        "Activity of a unit that is not measured is at most this.",
        "estimated from the driver's utilization over the last poll interval",
        RESOURCE,
    ),
    counter(
        "gpu_time_seconds_total",
        "seconds",
        "share",
        "core",
        "Observed time in five parts: idle (nothing resident), narrow (not all SMs), unsaturated "
        "(SMs held, no unit full), clock (lost to lower clocks), saturated.",
        "derived from measured and complete activity, integrated since the exporter started",
        PART,
    ),
    gauge(
        "gpu_tensor_flops_utilization_ratio",
        "ratio",
        "share",
        "full",
        "OFU: tensor FLOP/s over the tensor peak at the clock of the datasheet, whatever the "
        "precision.",
        "derived: tensor activity x SM clock / gpu_peak_clock_hertz over the last poll interval",
    ),
)
