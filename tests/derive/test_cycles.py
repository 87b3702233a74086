# SPDX-License-Identifier: Apache-2.0
"""Counters that count cycles of a clock that moves: work, time parts and limiter as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.derive.driven import Fake
from tests.fake_nvml import square

Open = Callable[..., Any]
BUSY_MHZ, IDLE_MHZ = 1980.0, 345.0
BF16_PER_CYCLE = 989.4e12 / 1830e6
"""FLOP/s of the whole GPU per hertz."""


def duty_cycle(period: float, duty: float, sm: float, tensor: float) -> dict[str, Any]:
    """An H100 that works for a part of each period, and lowers its clock for the rest."""
    return {
        "utilization": square(period, duty, 100),
        "clocks": {"sm": square(period, duty, BUSY_MHZ, IDLE_MHZ)},
        "gpm": {
            "graphics": square(period, duty, 100),
            "sm": square(period, duty, 100 * sm),
            "tensor": square(period, duty, 100 * tensor),
            "hmma": square(period, duty, 100 * tensor),
            "dram": square(period, duty, 10),
        },
    }


@pytest.mark.parametrize("interval", [0.1, 1.0, 2.5])
@pytest.mark.parametrize("period", [0.02, 0.5, 1.0, 5.0])
@pytest.mark.parametrize("duty", [0.05, 0.2, 0.5, 0.9])
@pytest.mark.parametrize(("sm", "tensor"), [(1.0, 0.9), (0.4, 0.36)])
def test_a_duty_cycle(
    open_gpu: Open, interval: float, period: float, duty: float, sm: float, tensor: float
) -> None:
    seconds = 20.0
    gpu = Fake(open_gpu(**duty_cycle(period, duty, sm, tensor)), interval)
    page = gpu.run(seconds)
    true_flops = duty * tensor * BF16_PER_CYCLE * BUSY_MHZ * 1e6 * seconds
    parts = page.by("gpu_time_seconds_total", "part")
    lim = page.by("gpu_limited_seconds_total", "limiter")
    f = page("gpu_flops_total", precision="bf16_tensor") / true_flops
    obs = sum(parts.values())
    print(f"\nRESULT i={interval} p={period} d={duty} sm={sm}: F={f:.4f} idle={parts['idle']/obs:.3f}/{1-duty:.3f} narrow={parts['narrow']/obs:.3f}/{duty*(1-sm):.3f} unsat={parts['unsaturated']/obs:.3f}/{duty*(sm-tensor):.3f} clock={parts['clock']/obs:.3f} sat={parts['saturated']/obs:.3f}/{duty*tensor:.3f} S={page('gpu_saturation_seconds_total')/obs:.3f} lim={max(lim,key=lim.get)}")
