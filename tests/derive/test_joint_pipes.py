# SPDX-License-Identifier: Apache-2.0
"""Sources that read two units as one (CUPTI): what of the work is known, and what it is counted as.

From readings through the publisher to the page.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Activity
from tests.derive.driven import SPECS, Page, Scripted, device_of
from tests.derive.readings import known

RATIO = st.floats(0.0, 1.0)


def read(gpu: str, **values: float | None) -> Page:
    """The page after a second with these activities, at the clocks of the datasheet."""
    clocks = SPECS.models[gpu].peak_clock_hertz
    bench = Scripted(device_of(gpu), 1.0)
    return bench.read(
        Activity("cupti", 1.0, engine=1.0, sm=1.0, **values),
        clock_hertz={"sm": clocks["vector"], "memory": clocks["memory"]},
    )


def test_fma_counts_as_fp32_work() -> None:
    """The A100's units at half: half of 19.5 TFLOP/s, and bounds from nothing to FP16's rate."""
    page = read("a100-sxm4-80gb", tensor=0.0, fp64=0.0, fma=0.5, integer=0.0, dram=0.1)
    assert page("gpu_saturation_ratio") == 0.5
    assert page("gpu_pipe_active_ratio", pipe="fma") == 0.5
    assert page("gpu_pipe_active_seconds_total", pipe="fma") == 0.5
    assert page("gpu_flops_total", precision="fp32") == pytest.approx(9.75e12, rel=0.01)
    assert page("gpu_flops_total", precision="fp16") is None
    assert page("gpu_flops_lower_total") == 0.0
    assert page("gpu_flops_upper_total") == pytest.approx(39e12, rel=0.01)
    assert page("gpu_arithmetic_intensity_flops_per_byte") is not None
    assert page("gpu_roof_ratio", basis="clock") == 0.5


def test_turing_tensor_work_is_an_upper_estimate() -> None:
    """A T4 whose tensor and FP16 pipe works half of the time: at most 65 / 2 TFLOP/s, and that
    is how it counts; it may have been vector FP16 all along."""
    page = read("t4", tensor_fp16=0.5, fma=0.1, fp64=0.0, integer=0.0, dram=0.1)
    assert page("gpu_saturation_ratio") == 0.5
    assert page("gpu_pipe_active_ratio", pipe="tensor_fp16") == 0.5
    assert page("gpu_pipe_active_ratio", pipe="tensor") is None
    assert page("gpu_tensor_flops_utilization_ratio") is None
    counted = page("gpu_flops_total", precision="fp16_tensor")
    assert counted == pytest.approx(0.5 * SPECS.models["t4"].peak_flops_per_second["fp16_tensor"])
    assert page("gpu_flops_lower_total") == 0.0
    upper = known(page("gpu_flops_upper_total"))
    assert counted is not None
    assert upper >= counted + 0.1 * SPECS.models["t4"].peak_flops_per_second["fp32"]
    assert sum(page.by("gpu_time_seconds_total", "part").values()) == pytest.approx(1.0)


@given(fp32=RATIO, fp16=RATIO, overlap=RATIO, tensor=RATIO, density=RATIO)
def test_the_work_lies_within_the_bounds(
    fp32: float, fp16: float, overlap: float, tensor: float, density: float
) -> None:
    """Whatever the joint pipes did, at whatever share of their full rate."""
    peaks = SPECS.models["t4"].peak_flops_per_second
    most = min(1.0, tensor + fp16)
    joint = max(tensor, fp16) + overlap * (most - max(tensor, fp16))
    page = read("t4", tensor_fp16=joint, fma=fp32, fp64=0.0, dram=0.0)
    vector_fp16 = max(0.0, joint - tensor)
    truth = tensor * peaks["fp16_tensor"] + density * (
        fp32 * peaks["fp32"] + vector_fp16 * peaks["fp16"]
    )
    lower, upper = known(page("gpu_flops_lower_total")), known(page("gpu_flops_upper_total"))
    assert lower <= truth <= upper * (1 + 1e-9)
