# SPDX-License-Identifier: Apache-2.0
"""The saturation of each unit, and the parts of time."""

from __future__ import annotations

from exporter.exposition.family import Family, core_counter, core_gauge, counter, gauge
from exporter.exposition.labels import Label, lower, upper
from exporter.exposition.parts import ACTIVITY, ROOFLINE, SATURATION, TOTALS
from exporter.model.snapshot import TIME_PARTS

PIPE = Label("pipe", ("tensor", "fp64", "fp32", "fp16", "int", "tensor_fp16", "fma"))
"""The last two are pipes that a source reads only together: tensor and FP16, FP32 and FP16."""
TENSOR_OP = Label("op", ("hmma", "imma", "dmma", "dfma"))
RESOURCE = Label("resource", ("sm", "tensor", "fma", "fp64", "int", "dram"))
ESTIMATED = Label("resource", ("tensor", "fma", "dram"))
PART = Label("part", TIME_PARTS)

_OVER_POLL = "measured over the last poll interval."
_READABLE = (
    "of the units that can be read; a kernel limited by another unit (special functions, shared "
    "memory, issue slots) shows less"
)
_WINDOW = (
    "Over the last poll interval; where a GPU without counters has been steady for ten seconds, "
    "also by the work that its training jobs state."
)

FAMILIES: tuple[Family, ...] = (
    gauge(
        "gpu_engine_active_ratio",
        f"Share of time in which the graphics and compute engine was active, {_OVER_POLL}",
        "GPM 1; DCGM field 1001; CUPTI gr__cycles_active",
        ACTIVITY.one(lambda a: a.engine),
    ),
    gauge(
        "gpu_sm_active_ratio",
        f"Share of cycles (not of time: few pass at a low clock) with a warp resident on an SM, "
        f"averaged over the SMs, {_OVER_POLL}",
        "GPM 249/248, else GPM 2; DCGM field 1002; CUPTI sm__cycles_active",
        ACTIVITY.one(lambda a: a.sm),
    ),
    gauge(
        "gpu_sm_occupancy_ratio",
        f"Resident warps over the most that fit; high occupancy is no saturation; {_OVER_POLL}",
        "GPM 3; DCGM field 1003; CUPTI sm__warps_active",
        ACTIVITY.one(lambda a: a.occupancy),
    ),
    gauge(
        "gpu_dram_active_ratio",
        f"Share of cycles in which the memory interface moved data, {_OVER_POLL}",
        "GPM 10; DCGM field 1005; CUPTI dram__throughput",
        ACTIVITY.one(lambda a: a.dram),
    ),
    gauge(
        "gpu_pipe_active_ratio",
        f"Share of cycles (not of time: few pass at a low clock) in which a math pipe was busy, "
        f"{_OVER_POLL} fma: the FP32 and FP16 units as one; tensor_fp16: tensor and FP16 as one; "
        "only from sources that do not tell them apart.",
        "GPM 250 and 257-260 over 248, else GPM 4, 5, 11, 12, 13; DCGM fields 1004, 1006-1008, "
        "1016; "
        "CUPTI sm__pipe_* and sm__inst_executed_pipe_*",
        ACTIVITY.by_label(PIPE, lambda a: a.pipe_ratios),
    ),
    gauge(
        "gpu_tensor_op_active_ratio",
        f"Share of cycles in which the tensor pipe ran a kind of operation, {_OVER_POLL}",
        "GPM 251-254 over 248, else GPM 6-9; DCGM fields 1013-1015; CUPTI sm__pipe_tensor_*",
        ACTIVITY.by_label(TENSOR_OP, lambda a: a.tensor_op_ratios),
    ),
    core_counter(
        "gpu_engine_active_seconds_total",
        "Time in which the graphics and compute engine was active.",
        "integral of gpu_engine_active_ratio since the exporter started",
        TOTALS.one(lambda t: t.engine_active_seconds),
    ),
    core_counter(
        "gpu_sm_active_seconds_total",
        "SM activity integrated over time, averaged over the SMs: a share of cycles, so more than "
        "the time that they were active if the clock fell in between.",
        "integral of gpu_sm_active_ratio since the exporter started",
        TOTALS.one(lambda t: t.sm_active_seconds),
    ),
    core_counter(
        "gpu_dram_active_seconds_total",
        "Time in which the memory interface moved data.",
        "integral of gpu_dram_active_ratio since the exporter started",
        TOTALS.one(lambda t: t.dram_active_seconds),
    ),
    core_counter(
        "gpu_pipe_active_seconds_total",
        "Activity of a math pipe integrated over time: a share of cycles, so more than the time "
        "that it was busy if the clock fell in between. Pipes run side by side, so rows can exceed "
        "the time that passed.",
        "integral of gpu_pipe_active_ratio since the exporter started",
        TOTALS.by_label(PIPE, lambda t: t.pipe_active_seconds),
    ),
    counter(
        "gpu_tensor_op_active_seconds_total",
        "Activity of the tensor pipe by kind of operation integrated over time, a share of cycles.",
        "integral of gpu_tensor_op_active_ratio since the exporter started",
        TOTALS.by_label(TENSOR_OP, lambda t: t.tensor_op_active_seconds),
    ),
    core_gauge(
        "gpu_saturation_ratio",
        f"How close the GPU is to a limit {_READABLE}. Only where measured and complete.",
        "derived: max of tensor, fp64, fma, int (as shares of time) and DRAM activity over the "
        "last poll interval",
        SATURATION.one(lambda s: s.ratio),
    ),
    core_counter(
        "gpu_saturation_seconds_total",
        f"Saturation integrated over time, {_READABLE}.",
        "integral of gpu_saturation_ratio since the exporter started",
        TOTALS.one(lambda t: t.saturation_seconds),
    ),
    core_gauge(
        "gpu_saturation_lower_ratio",
        f"Saturation is at least this, {_READABLE}. {_WINDOW}",
        "derived: max of the lower bounds of each unit; where not measured, from utilization and "
        "stated work",
        SATURATION.one(lambda s: s.bounds.lower),
    ),
    core_gauge(
        "gpu_saturation_upper_ratio",
        f"Saturation is at most this, {_READABLE}. {_WINDOW}",
        "derived: max of the upper bounds of each unit; where not measured, from utilization and "
        "stated work",
        SATURATION.one(lambda s: s.bounds.upper),
    ),
    gauge(
        "gpu_resource_saturation_lower_ratio",
        f"Activity of a unit that is not measured is at least this. {_WINDOW}",
        "derived from what contains it: SM or engine activity where measured, else from the "
        "driver's utilization and the work that jobs state",
        SATURATION.by_label(RESOURCE, lambda s: lower(s.unmeasured)),
    ),
    gauge(
        "gpu_resource_saturation_upper_ratio",
        f"Activity of a unit that is not measured is at most this. {_WINDOW}",
        "derived from what contains it: SM or engine activity where measured, else from the "
        "driver's utilization and the work that jobs state",
        SATURATION.by_label(RESOURCE, lambda s: upper(s.unmeasured)),
    ),
    gauge(
        "gpu_resource_saturation_estimate_ratio",
        "Likely activity of a unit that is not measured. dram: 0.77 x the driver's memory "
        "utilization, checked on V100, T4 and B300 (mean error 0.04, nine of ten within 0.12), not "
        "on GeForce, Ada and Hopper. tensor, fma: FLOP/s that jobs report over the peak of the "
        "pipe that their precision stands for, at the present clock, over the last ten seconds; "
        "wrong where what is counted was done in another way (sparsity, Winograd or FFT "
        "convolutions) or on another pipe.",
        "derived: NVML memory utilization over the last poll interval; gpu_training_model_flops_"
        "total / (gpu_peak_flops_per_second x SM clock / gpu_peak_clock_hertz)",
        SATURATION.by_label(ESTIMATED, lambda s: s.estimates),
    ),
    core_counter(
        "gpu_time_seconds_total",
        "Observed time in five parts: idle (nothing resident), narrow (not all SMs), unsaturated "
        "(SMs held, no unit full), clock (lost to lower clocks), saturated.",
        "derived from measured and complete activity, integrated since the exporter started",
        TOTALS.by_label(PART, lambda t: t.time_seconds),
    ),
    counter(
        "gpu_time_lower_seconds_total",
        "Observed time in each part of gpu_time_seconds_total at least, where that is not known "
        "because not every unit is read.",
        "derived from bounds of engine and SM activity, saturation and clock, integrated since the "
        "exporter started",
        TOTALS.by_label(PART, lambda t: t.time_lower_seconds),
    ),
    counter(
        "gpu_time_upper_seconds_total",
        "Observed time in each part of gpu_time_seconds_total at most, where that is not known "
        "because not every unit is read; the parts add up to more than the time that passed.",
        "derived as gpu_time_lower_seconds_total",
        TOTALS.by_label(PART, lambda t: t.time_upper_seconds),
    ),
    gauge(
        "gpu_tensor_flops_utilization_ratio",
        "OFU: tensor FLOP/s over the tensor peak at the clock of the datasheet, whatever the "
        "precision.",
        "derived: tensor activity x SM clock / gpu_peak_clock_hertz over the last poll interval",
        ROOFLINE.one(lambda r: r.tensor_flops_utilization_ratio),
    ),
)
