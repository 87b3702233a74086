# SPDX-License-Identifier: Apache-2.0
"""What limited an interval."""

from __future__ import annotations

import pytest

from exporter.derive.limiter import estimated_limiter, limiter
from exporter.derive.links import LinkRates
from exporter.derive.saturation import measured
from exporter.derive.timeparts import time_parts
from exporter.model.snapshot import Ceilings
from tests.derive.readings import H100_CEILINGS, counters, known


def limiter_of(
    values: dict[str, float],
    clock: float = 1.0,
    links: LinkRates | None = None,
    ceilings: Ceilings | None = H100_CEILINGS,
    bandwidth: float | None = 3352e9,
    stall: float | None = None,
) -> str:
    """The limiter of a second with these activities."""
    activity = counters(**values)
    saturation = measured(activity, (9, 0))
    parts = known(time_parts(activity, saturation, clock))
    return limiter(parts, saturation, activity, links or LinkRates(), ceilings, bandwidth, stall)


@pytest.mark.parametrize(
    ("values", "clock", "expected"),
    [
        ({}, 1.0, "idle"),
        ({"engine": 1.0, "sm": 0.2, "tensor": 0.2}, 1.0, "latency"),
        ({"engine": 1.0, "sm": 0.7, "tensor": 0.4}, 1.0, "latency"),
        ({"engine": 1.0, "sm": 1.0, "tensor": 0.8}, 1.0, "compute"),
        ({"engine": 1.0, "sm": 1.0, "fp64": 0.8, "dram": 0.7}, 1.0, "compute"),
        ({"engine": 1.0, "sm": 1.0, "tensor": 0.5, "dram": 0.8}, 1.0, "memory"),
        ({"engine": 1.0, "sm": 1.0, "tensor": 0.8, "dram": 0.8}, 1.0, "memory"),
        ({"engine": 1.0, "sm": 1.0, "tensor": 0.9}, 0.4, "clock"),
        ({"engine": 0.5, "sm": 0.5, "tensor": 0.5}, 1.0, "idle"),
        ({"engine": 1.0, "sm": 1.0, "tensor": 0.5}, 1.0, "latency"),
        ({"engine": 1.0, "sm": 1.0, "tensor": 1.0}, 0.5, "clock"),
    ],
)
def test_the_largest_part_names_the_limiter(
    values: dict[str, float], clock: float, expected: str
) -> None:
    """Saturated becomes memory or compute by its unit; of equal parts the earlier loss is taken."""
    assert limiter_of(values, clock) == expected


@pytest.mark.parametrize(
    ("tensor", "stall", "expected"),
    [
        (0.4, None, "idle"),
        (0.4, 0.49, "idle"),
        (0.4, 0.5, "input"),
        (0.4, 1.2, "input"),
        (0.8, 1.0, "compute"),
    ],
)
def test_an_idle_gpu_is_limited_by_input_if_the_stall_covers_half(
    tensor: float, stall: float | None, expected: str
) -> None:
    """Only where idle is the largest part, and only from half of it on."""
    values = {"engine": tensor, "sm": tensor, "tensor": tensor}
    assert limiter_of(values, stall=stall) == expected


@pytest.mark.parametrize(
    ("values", "links", "expected"),
    [
        ({"tensor": 0.04}, LinkRates(nvlink=45e9), "communication"),
        ({"tensor": 0.04}, LinkRates(pcie=7e9), "communication"),
        ({"tensor": 0.04}, LinkRates(nvlink=44e9, pcie=6e9), "latency"),
        ({"fp64": 0.06}, LinkRates(nvlink=400e9), "latency"),
        ({"integer": 0.06}, LinkRates(nvlink=400e9), "latency"),
        ({"tensor": 0.05}, LinkRates(nvlink=400e9), "latency"),
        ({"fp32": 0.04, "fp16": 0.04}, LinkRates(nvlink=400e9), "communication"),
        ({"dram": 0.09}, LinkRates(nvlink=45e9), "communication"),
        ({"dram": 0.092}, LinkRates(nvlink=45e9), "latency"),
        ({"dram": 0.40}, LinkRates(nvlink=400e9), "communication"),
        ({"dram": 0.42}, LinkRates(nvlink=400e9), "latency"),
        ({"dram": 0.6}, LinkRates(nvlink=450e9), "memory"),
        ({"tensor": 0.04}, LinkRates(), "latency"),
    ],
)
def test_busy_links_with_quiet_units_are_communication(
    values: dict[str, float], links: LinkRates, expected: str
) -> None:
    """Every pipe below 5 %, DRAM too after 3 bytes for each over a link (of 3352 GB/s), the busier
    direction of a link at 10 % of its peak."""
    values = {"engine": 1.0, "sm": 0.9, **values}
    assert limiter_of(values, links=links) == expected
    alone = "memory" if expected == "memory" else "latency"
    assert limiter_of(values, links=links, ceilings=None) == alone


def test_only_time_with_kernels_can_be_communication() -> None:
    """And only where it is known what the traffic costs in DRAM."""
    links = LinkRates(nvlink=400e9)
    assert limiter_of({"engine": 0.3, "sm": 0.3}, links=links) == "idle"
    moves = {"engine": 1.0, "sm": 0.9, "dram": 0.1}
    assert limiter_of(moves, links=links, bandwidth=None) == "latency"


@pytest.mark.parametrize(
    ("busy", "throttled", "expected"),
    [
        (0.5, False, "idle"),
        (0.0, True, "idle"),
        (0.51, False, "unknown"),
        (0.51, True, "clock"),
        (None, False, "unknown"),
        (None, True, "clock"),
    ],
)
def test_without_counters_little_is_claimed(
    busy: float | None, throttled: bool, expected: str
) -> None:
    """Idle if at least half the time, clock while throttled, else unknown."""
    assert estimated_limiter(busy, throttled=throttled) == expected
