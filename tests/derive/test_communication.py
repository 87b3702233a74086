# SPDX-License-Identifier: Apache-2.0
"""When a GPU communicates: links busy, and nothing else but what the links cost in DRAM."""

from __future__ import annotations

import pytest

from exporter.model.reading import Activity
from tests.derive.driven import SPECS, Scripted, device_of

GPUS = ("h100-sxm5-80gb", "h200-sxm", "b200")
NCCL_SMS = 24
"""SMs that a collective keeps busy."""


def limiter_of(
    gpu: str,
    interval: float,
    *,
    nvlink: float,
    dram_bytes: float,
    engine: float = 1.0,
    sm: float | None = None,
) -> str | None:
    """The limiter on the page of a GPU that moves this share of NVLink's peak in one direction, and
    a little less in the other, and so many bytes per second in DRAM."""
    model, bench = SPECS.models[gpu], Scripted(device_of(gpu), interval)
    peak = model.nvlink_bandwidth_bytes_per_second
    bits, clock = model.memory_bus_width_bits, model.peak_clock_hertz["memory"]
    assert peak is not None
    assert bits is not None
    moved = nvlink * peak * interval
    activity = Activity(
        "gpm",
        interval,
        engine=engine,
        sm=NCCL_SMS / (model.sm_count or 132) if sm is None else sm,
        dram=dram_bytes / (clock * 2 * bits / 8),
        nvlink_transmit_bytes=0.9 * moved,
        nvlink_receive_bytes=moved,
        **dict.fromkeys(("tensor", "fp64", "fp32", "fp16", "integer"), 0.0),
    )
    clocks = {"clock_hertz": {"sm": 1.7e9, "memory": clock}}
    for _ in range(3):
        page = bench.read(activity, **clocks)
    found = page.by("gpu_limited_seconds_total", "limiter")
    [name] = [name for name, seconds in found.items() if seconds]
    assert found[name] == pytest.approx(3 * interval)
    return name


@pytest.mark.parametrize("interval", [0.1, 1.0, 2.5])
@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("nvlink", [0.1, 0.2, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("cost", [2.0, 3.0])
def test_a_collective_is_communication(
    gpu: str, interval: float, nvlink: float, cost: float
) -> None:
    """From 10 to 100 % of NVLink's peak, each byte read or written two to three times."""
    peak = SPECS.models[gpu].nvlink_bandwidth_bytes_per_second
    assert peak is not None
    assert (
        limiter_of(gpu, interval, nvlink=nvlink, dram_bytes=cost * nvlink * peak) == "communication"
    )


def test_dram_that_only_serves_the_links_is_communication_where_it_is_the_largest() -> None:
    """38 % of the time nothing runs, and DRAM at its limit would be the largest part: 40 %."""
    found = limiter_of(
        "h100-sxm5-80gb", 1.0, nvlink=1.0, dram_bytes=3.0 * 450e9, engine=0.62, sm=0.2
    )
    assert found == "communication"
