# SPDX-License-Identifier: Apache-2.0
"""The ceilings of a GPU, its FLOPs and traffic, its distance to the roof, and the known causes."""

from __future__ import annotations

from exporter.exposition.family import Family, core_counter, core_gauge, counter, gauge
from exporter.exposition.labels import Label
from exporter.exposition.parts import CEILINGS, FLOPS_BOUNDS, ROOFLINE, SHARE, TOTALS, Rows
from exporter.model.causes import CAUSES
from exporter.model.snapshot import LIMITERS, PRECISIONS, Ceilings

PEAK_PRECISION = Label("precision", PRECISIONS, full_values=("fp16", "bf16"))
COUNTED_PRECISION = Label(
    "precision",
    (
        "fp64",
        "fp64_tensor",
        "fp32",
        "fp16",
        "tf32_tensor",
        "fp16_tensor",
        "bf16_tensor",
        "fp8_tensor",
        "int8_tensor",
        "int4_tensor",
        "fp4_tensor",
    ),
)
"""The measured pipes, and the assumed precisions of tensor work."""
CEILING_BASIS = Label("basis", ("spec", "achievable"), full_values=("achievable",))
ROOF_BASIS = Label("basis", ("spec", "clock", "achievable"))
CLOCKED_UNIT = Label("unit", ("tensor", "vector", "memory"))
LIMITER = Label("limiter", LIMITERS)

_FMA = "vector FLOPs are counted as if every instruction were an FMA"


def _peak_flops(ceilings: Ceilings) -> Rows:
    achievable = ceilings.achievable_ratio
    for precision, peak in ceilings.peak_flops_per_second.items():
        yield (precision, "spec"), peak
        if precision in achievable:
            yield (precision, "achievable"), peak * achievable[precision]


FAMILIES: tuple[Family, ...] = (
    core_gauge(
        "gpu_peak_flops_per_second",
        "Compute ceiling: dense, FMA = 2 operations, tensor rates with FP32 accumulation unless "
        "named fp16acc; int rows are operations, int8 without tensor is DP4A.",
        "spec: datasheet row of the spec file, else derived from NVML; achievable: x what the "
        "best public kernels reach",
        CEILINGS.rows((PEAK_PRECISION, CEILING_BASIS), _peak_flops),
    ),
    core_gauge(
        "gpu_peak_memory_bandwidth_bytes_per_second",
        "Device memory bandwidth ceiling.",
        "spec: datasheet row of the spec file, else memory clock x 2 x bus width / 8; achievable: "
        "x what the best public kernels reach",
        CEILINGS.by_label(CEILING_BASIS, lambda c: c.memory_bandwidth_by_basis),
    ),
    core_gauge(
        "gpu_peak_clock_hertz",
        "Clock at which the spec ceilings hold; real clocks can exceed it.",
        "spec file, else estimated from the maximum clocks of NVML",
        CEILINGS.by_label(CLOCKED_UNIT, lambda c: c.peak_clock_hertz),
    ),
    core_counter(
        "gpu_flops_total",
        f"Operations done by the pipes that are measured; {_FMA} (an upper estimate; pipe fma as "
        "fp32), tensor work as FP64 and INT8 where the counters show that, the rest, and pipe "
        "tensor_fp16, at the assumed precision.",
        "derived: active cycles x FLOP per clock and SM, since the exporter started",
        TOTALS.by_label(COUNTED_PRECISION, lambda t: t.flops),
    ),
    counter(
        "gpu_flops_lower_total",
        "Operations done, at least: tensor work at the slowest precision that it can have been, no "
        "vector work.",
        "derived, since the exporter started",
        TOTALS.one(lambda t: t.flops_lower),
    ),
    counter(
        "gpu_flops_upper_total",
        f"Operations done, at most: the fastest rates of the hardware; {_FMA}.",
        "derived, since the exporter started",
        TOTALS.one(lambda t: t.flops_upper),
    ),
    core_counter(
        "gpu_dram_bytes_total",
        "Bytes moved between device memory and GPU.",
        "derived: DRAM activity x memory clock x 2 x bus width / 8, since the exporter started",
        TOTALS.one(lambda t: t.dram_bytes),
    ),
    gauge(
        "gpu_flops_per_second",
        f"Operations per second of the pipes that are measured, over the last poll interval, all "
        f"precisions together; {_FMA}.",
        "derived as gpu_flops_total",
        ROOFLINE.one(lambda r: r.total_flops_per_second),
    ),
    gauge(
        "gpu_flops_lower_per_second",
        "Operations per second over the last poll interval, at least.",
        "derived as gpu_flops_lower_total",
        FLOPS_BOUNDS.one(lambda b: b.lower),
    ),
    gauge(
        "gpu_flops_upper_per_second",
        "Operations per second over the last poll interval, at most.",
        "derived as gpu_flops_upper_total",
        FLOPS_BOUNDS.one(lambda b: b.upper),
    ),
    gauge(
        "gpu_stated_flops_per_second",
        "Operations per second that the training jobs on it report, over the last ten seconds, "
        "limited to what the GPU can do. Not measured.",
        "gpu_training_model_flops_total of the ranks whose process the driver lists",
        ROOFLINE.one(lambda r: r.stated_flops_per_second),
    ),
    gauge(
        "gpu_dram_bytes_per_second",
        "Bytes per second between device memory and GPU over the last poll interval.",
        "derived as gpu_dram_bytes_total",
        ROOFLINE.one(lambda r: r.dram_bytes_per_second),
    ),
    gauge(
        "gpu_dram_estimate_bytes_per_second",
        "Likely bytes per second between device memory and GPU where they are not measured.",
        "derived: gpu_resource_saturation_estimate_ratio of dram x memory clock x 2 x bus width / "
        "8, over the last poll interval",
        ROOFLINE.one(lambda r: r.dram_estimate_bytes_per_second),
    ),
    gauge(
        "gpu_arithmetic_intensity_flops_per_byte",
        "Operations per byte of device memory traffic over the last poll interval.",
        "derived: gpu_flops_per_second / gpu_dram_bytes_per_second",
        ROOFLINE.one(lambda r: r.intensity_flops_per_byte),
    ),
    gauge(
        "gpu_roof_ratio",
        "How close the point is to its roof: 1 is on the roof; above 1 means that clocks exceed "
        "those of the basis.",
        "derived: max over units of activity x clock / clock of the basis, and of DRAM traffic / "
        "bandwidth, over the last poll interval",
        ROOFLINE.by_label(ROOF_BASIS, lambda r: r.roof_ratio),
    ),
    core_counter(
        "gpu_roof_seconds_total",
        "Integral of gpu_roof_ratio over observed activity time.",
        "derived as gpu_roof_ratio, x time, since the exporter started",
        TOTALS.by_label(ROOF_BASIS, lambda t: t.roof_seconds),
    ),
    core_counter(
        "gpu_limited_seconds_total",
        "Observed time by what limited it most.",
        "derived: the largest part of each poll interval, or what certainly took more than half of "
        "it where parts are only bounded, else unknown; idle time in a wait for data that the job "
        "announced counts as input apart from the rest; since the exporter started",
        TOTALS.by_label(LIMITER, lambda t: t.limited_seconds),
    ),
)

DIAGNOSIS_FAMILIES: tuple[Family, ...] = (
    core_gauge(
        "gpu_diagnosis",
        "1 for each known cause that holds this GPU back now, as far as the evidence shows it; no "
        "series for the others. docs/causes.md has a section for each, with what to change.",
        "derived from the last 10 s and the loop of its training jobs so far",
        SHARE.by_label(
            Label("cause", tuple(each.slug for each in CAUSES)),
            lambda share: {each.cause: 1 for each in share.diagnoses},
        ),
    ),
)
