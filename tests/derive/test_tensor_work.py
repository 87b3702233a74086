# SPDX-License-Identifier: Apache-2.0
"""What tensor work is counted as: what the source splits, what a job reports, or only bounds.

From readings through the publisher to the page; the truth is SMs x FLOP per clock and SM x f.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from exporter.model.reading import Activity
from tests.derive.driven import Page, Scripted, device_of
from tests.derive.readings import known

INTERVALS = (0.1, 1.0, 2.5)
SM_CLOCK = 1.755e9
CYCLES = 132 * SM_CLOCK
"""Of all SMs of an H100 SXM in a second."""
FP64_TENSOR, TF32, BF16, FP8, INT8 = 256, 2048, 4096, 8192, 8192
"""FLOP per clock and SM of Hopper."""
SECONDS = 5.0


def busy(interval: float, **values: float) -> Activity:
    """Counters of one interval of a GPU that works all of the time."""
    quiet = dict.fromkeys(("engine", "sm"), 1.0) | dict.fromkeys(
        ("dram", "tensor", "fp64", "fp32", "fp16", "integer"), 0.0
    )
    return Activity("gpm", interval, **{**quiet, **values})


def worked(
    interval: float,
    values: dict[str, float],
    precision: str | None = None,
    gpu: str = "h100-sxm5-80gb",
) -> Page:
    """The page after five seconds of this work."""
    bench = Scripted(device_of(gpu), interval)
    bench.job.precision = precision
    clocks: dict[str, Any] = {"clock_hertz": {"sm": SM_CLOCK, "memory": 2.619e9}}
    for _ in range(round(SECONDS / interval)):
        page = bench.read(
            busy(interval, **values),
            **clocks,
            mean_sm_clock_hertz=SM_CLOCK,
            busy_sm_clock_hertz=SM_CLOCK,
        )
    return page


def flops(page: Page) -> dict[str, float]:
    """FLOP/s by precision, where there was any, in units of the cycles of all SMs."""
    totals = page.by("gpu_flops_total", "precision")
    return {name: total / SECONDS / CYCLES for name, total in totals.items() if total}


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"tensor": 0.9, "dmma": 0.9, "hmma": 0.0}, {"fp64_tensor": 0.9 * FP64_TENSOR}),
        ({"tensor": 0.9, "dmma": 0.0, "dfma": 0.9}, {"fp64_tensor": 0.9 * FP64_TENSOR}),
        ({"tensor": 0.9, "imma": 0.9}, {"int8_tensor": 0.9 * INT8}),
        ({"tensor": 0.9, "hmma": 0.9, "dmma": 0.0, "imma": 0.0}, {"bf16_tensor": 0.9 * BF16}),
        (
            {"tensor": 0.8, "hmma": 0.5, "imma": 0.1, "dmma": 0.2},
            {
                "fp64_tensor": 0.2 * FP64_TENSOR,
                "int8_tensor": 0.1 * INT8,
                "bf16_tensor": 0.5 * BF16,
            },
        ),
        ({"tensor": 0.3, "imma": 0.2, "dmma": 0.4}, {"fp64_tensor": 0.3 * FP64_TENSOR}),
        (
            {"tensor": 0.5, "fp64": 0.1, "fp32": 0.2, "fp16": 0.3},
            {"bf16_tensor": 0.5 * BF16, "fp64": 12.8, "fp32": 51.2, "fp16": 153.6},
        ),
    ],
)
def test_a_split_that_is_measured_is_used(
    interval: float, values: dict[str, float], expected: dict[str, float]
) -> None:
    """A DGEMM is FP64 (53 TFLOP/s here, not 854), integers are INT8, the rest is assumed."""
    page = worked(interval, values)
    assert flops(page) == pytest.approx(expected, rel=0.003)
    total, lower, upper = (
        sum(page.by("gpu_flops_total", "precision").values()),
        known(page("gpu_flops_lower_total")),
        known(page("gpu_flops_upper_total")),
    )
    assert lower <= total * (1 + 1e-9)
    assert total <= upper * (1 + 1e-9)


@pytest.mark.parametrize(
    ("gpu", "op"), [("l40s", "dmma"), ("v100-sxm2-16gb", "imma"), ("v100-sxm2-16gb", "dmma")]
)
def test_work_without_a_ceiling_is_no_other_precision(gpu: str, op: str) -> None:
    """No FP64 on an L40S's tensor pipe, no integers on a V100's: only bounds, no smaller number."""
    page = worked(1.0, {"tensor": 0.9, op: 0.5}, gpu=gpu)
    assert page.by("gpu_flops_total", "precision") == {}
    assert page("gpu_roof_ratio", basis="achievable") is None
    assert page("gpu_flops_upper_total") is not None
    noise = worked(1.0, {"tensor": 0.9, op: 0.004}, gpu=gpu)
    assert noise.by("gpu_flops_total", "precision") != {}


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize(
    ("reported", "precision", "rate"),
    [
        ("fp32", "tf32_tensor", TF32),
        ("bf16-mixed", "bf16_tensor", BF16),
        ("mxfp8", "fp8_tensor", FP8),
        ("fp64", "fp64_tensor", FP64_TENSOR),
        ("none", "bf16_tensor", BF16),
    ],
)
def test_a_reported_precision_is_what_the_gpu_has(
    interval: float, reported: str, precision: str, rate: int
) -> None:
    """Under the name of the peak, at its rate; FP32 that keeps the tensor pipe busy is TF32."""
    assert flops(worked(interval, {"tensor": 0.5}, reported)) == pytest.approx(
        {precision: 0.5 * rate}, rel=0.003
    )


@pytest.mark.parametrize("reported", ["nvfp4", "nf4", "posit8", "mixed"])
def test_a_precision_that_the_gpu_lacks_is_unknown(
    reported: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Bounds only, for as long as the job runs, with one line in the log."""
    bench = Scripted(device_of("h100-sxm5-80gb"), 0.5)
    bench.job.precision = reported
    with caplog.at_level(logging.INFO):
        for _ in range(6):
            page = bench.read(busy(0.5, tensor=0.5), clock_hertz={"sm": SM_CLOCK})
    lines = [entry.getMessage() for entry in caplog.records if reported in entry.getMessage()]
    assert len(lines) == 1
    assert page.by("gpu_flops_total", "precision") == {}
    assert page("gpu_flops_per_second") is None
    assert page("gpu_arithmetic_intensity_flops_per_byte") is None
    assert page("gpu_roof_ratio", basis="achievable") is None
    assert page("gpu_roof_ratio", basis="spec") == pytest.approx(0.5 * SM_CLOCK / 1.83e9)
    assert page("gpu_flops_lower_total") == pytest.approx(
        3.0 * CYCLES * 0.5 * FP64_TENSOR, rel=0.003
    )
    assert page("gpu_flops_upper_total") == pytest.approx(3.0 * CYCLES * 0.5 * FP8, rel=0.003)
    bench.job.precision = "bf16"
    page = bench.read(busy(0.5, tensor=0.5), clock_hertz={"sm": SM_CLOCK})
    page = bench.read(busy(0.5, tensor=0.5), clock_hertz={"sm": SM_CLOCK})
    assert page("gpu_flops_per_second") == pytest.approx(CYCLES * 0.5 * BF16, rel=0.003)
