# SPDX-License-Identifier: Apache-2.0
"""The upper bound of the work is never below what the SMs can do at their clock."""

from __future__ import annotations

import pytest

from exporter.specs.derived import rule_for
from tests.derive.driven import SPECS, Scripted, device_of
from tests.derive.readings import known
from tests.derive.test_tensor_work import busy

CUT = 0.8
"""A row with less than this of its architecture's rate is of a GPU model that was cut: its own
peaks decide."""
ROUNDING = 0.016
"""Datasheets round, or mix two clocks (L40S: 1.2 %)."""
ROWS = [
    key
    for key, model in SPECS.models.items()
    if model.sm_count
    and "vector" in model.peak_clock_hertz
    and any("_tensor" in name for name in model.peak_flops_per_second)
]


@pytest.mark.parametrize("key", ROWS)
def test_a_full_tensor_pipe_is_within_the_upper_bound(key: str) -> None:
    """For each GPU model, at its highest clock and at two thirds of it: SMs x FLOP per clock and
    SM x f of its fastest precision, and of a point estimate at the same rate."""
    model, device = SPECS.models[key], device_of(key)
    rule = known(rule_for(device))
    vector = model.peak_clock_hertz["vector"]
    for clock, interval in ((vector, 1.0), (vector * 2 / 3, 0.25)):
        bench = Scripted(device, interval)
        page = bench.read(
            busy(interval, tensor=1.0),
            clock_hertz={"sm": clock},
        )
        upper = known(page("gpu_flops_upper_total"))
        peaks = model.peak_flops_per_second
        for precision in ("tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor", "fp4_tensor"):
            if precision not in peaks or precision not in rule.flops_per_clock:
                continue
            rate = float((model.sm_count or 0) * rule.flops_per_clock[precision])
            tensor = model.peak_clock_hertz.get("tensor", vector)
            if peaks[precision] < CUT * rate * tensor:
                rate = peaks[precision] / tensor
            assert upper / interval >= rate * clock * (1 - ROUNDING), precision


def test_an_fp4_kernel_on_a_b200() -> None:
    """148 SMs x 32768 x 1965 MHz = 9.53 PFLOP/s, above the datasheet's 9 at 1856 MHz."""
    bench = Scripted(device_of("b200"), 2.5)
    page = bench.read(busy(2.5, tensor=0.9), clock_hertz={"sm": 1.965e9, "memory": 3.996e9})
    truth = 0.9 * 148 * 32768 * 1.965e9 * 2.5
    assert page("gpu_flops_upper_total") == pytest.approx(truth, rel=0.002)
    assert page("gpu_flops_total", precision="bf16_tensor") == pytest.approx(truth / 4, rel=0.002)
    assert page("gpu_tensor_flops_utilization_ratio") == pytest.approx(0.9 * 1965 / 1856, rel=0.001)


@pytest.mark.parametrize("idle_clock", [0.345e9, 1.2e9])
@pytest.mark.parametrize("duty", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("polled_when", ["idle", "busy"])
def test_the_bounds_hold_where_the_clock_is_only_polled(
    polled_when: str, duty: float, idle_clock: float
) -> None:
    """A GPU that is busy for a part of each second at 1980 MHz and lowers its clock meanwhile, with
    FP32 work and with FP64 on the tensor pipe: one poll a second shows one of the two clocks."""
    busy_clock = 1.98e9
    mean = duty * busy_clock + (1 - duty) * idle_clock
    cycles = duty * busy_clock / mean
    polled = busy_clock if polled_when == "busy" else idle_clock
    bench = Scripted(device_of("h100-sxm5-80gb"), 1.0)
    page = bench.read(
        busy(
            1.0, engine=duty, sm=cycles, tensor=0.5 * cycles, dmma=0.5 * cycles, fp32=0.4 * cycles
        ),
        clock_hertz={"sm": polled, "memory": 2.619e9},
    )
    active = duty * busy_clock * 132
    fp64, fp32 = active * 0.5 * 256, active * 0.4 * 256
    lower, upper = known(page("gpu_flops_lower_total")), known(page("gpu_flops_upper_total"))
    assert lower <= fp64 * 1.005
    assert (fp64 + fp32) * 0.995 <= upper
