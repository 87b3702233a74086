# SPDX-License-Identifier: Apache-2.0
"""The roofline of GPUs without counters: what jobs count over the likely traffic, with its bars."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.dashboards.models import targets
from tests.dashboards.test_sums import substituted
from tests.rules.cases import gauge
from tests.rules.promtool import MINUTE, Expected, Series, check

AT = 20 * MINUTE
NAME = "node-1 GPU 0, from the job and the driver"


def _query() -> str:
    (found,) = [
        one
        for one in targets("roofline")
        if "each GPU under its ceilings" in one.name and "estimate" in one.expression
    ]
    return substituted(found.expression)


def _series(**more: float) -> list[Series]:
    """A GPU on which a job does 20 TFLOP/s, with 0.4 TB/s of traffic that is likely."""
    gauges = {
        "gpu_stated_flops_per_second": 20e12,
        "gpu_dram_estimate_bytes_per_second": 0.4e12,
        "gpu_flops_lower_per_second": 15e12,
        "gpu_flops_upper_per_second": 40e12,
        **more,
    }
    return [
        gauge("gpu_info", 1, name="NVIDIA GeForce RTX 4090"),
        gauge("gpu_resource_saturation_estimate_ratio", 0.4, resource="dram"),
        gauge("gpu_resource_saturation_upper_ratio", 0.8, resource="dram"),
        gauge("gpu_peak_memory_bandwidth_bytes_per_second", 1e12, basis="spec"),
        *(gauge(name, value) for name, value in gauges.items()),
    ]


def test_no_bar_reaches_above_the_memory_roof(tmp_path: Path) -> None:
    """50 FLOP/byte at 1 TB/s are 50 TFLOP/s, whatever the pipes could do."""
    series = _series(gpu_flops_upper_per_second=80e12)
    highest = Expected(f"round(max({_query()}), 0.1)", AT, [("{}", 50e12)])
    check(tmp_path, [], series, [highest])


def _check(
    folder: Path, series: list[Series], wanted: Mapping[tuple[str, str, str], float]
) -> None:
    rows = [
        (f'{{axis="{axis}", series="{NAME}, {bar}", vertex="{vertex}"}}', value)
        for (bar, vertex, axis), value in wanted.items()
    ]
    found = Expected(f"round(max by (axis, series, vertex) ({_query()}), 0.0001)", AT, rows)
    check(folder, [], series, [found])


def test_bars_span_what_is_not_measured(tmp_path: Path) -> None:
    """50 FLOP/byte is likely and 25 the least; with no lower end of the traffic, any intensity."""
    work, most = 20e12, 10_000.0
    _check(
        tmp_path,
        _series(),
        {
            ("work", "least", "Intensity"): 50,
            ("work", "least", "Throughput"): 15e12,
            ("work", "likely", "Intensity"): 50,
            ("work", "likely", "Throughput"): work,
            ("work", "most", "Intensity"): 50,
            ("work", "most", "Throughput"): 40e12,
            ("intensity", "least", "Intensity"): 25,
            ("intensity", "least", "Throughput"): work,
            ("intensity", "likely", "Intensity"): 50,
            ("intensity", "likely", "Throughput"): work,
            ("intensity", "most", "Intensity"): most,
            ("intensity", "most", "Throughput"): work,
        },
    )


def test_without_stated_work_there_are_the_slopes_that_the_traffic_allows(tmp_path: Path) -> None:
    """0.4 TB/s is likely and 0.8 the most, from the bottom up to 40 TFLOP/s."""
    wanted = {}
    for name, traffic in (("likely traffic", 0.4e12), ("most traffic", 0.8e12)):
        for vertex, work in (("least", 1e11), ("most", 40e12)):
            wanted[name, vertex, "Intensity"] = work / traffic
            wanted[name, vertex, "Throughput"] = work
    _check(tmp_path, _series(gpu_stated_flops_per_second=0.0), wanted)


def test_where_the_memory_is_idle_nothing_is_drawn(tmp_path: Path) -> None:
    _check(tmp_path, _series(gpu_dram_estimate_bytes_per_second=0.0), {})
