# SPDX-License-Identifier: Apache-2.0
"""Idle and held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from exporter.derive.idle import IdleRules, is_held, is_idle
from exporter.derive.links import LinkRates, link_rates
from exporter.model.reading import Activity, Memory, Process, Vitals

RULES = IdleRules()
MIB = 1024 * 1024


def memory(used_mib: int) -> Memory:
    return Memory(total_bytes=80 * 1024 * MIB, used_bytes=used_mib * MIB, free_bytes=0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, True),
        ({"engine": 0.0099}, True),
        ({"engine": 0.01}, False),
        ({"sm": 0.02}, False),
        ({"dram": 0.02}, False),
        ({"encoder": 0.02}, False),
        ({"decoder": 0.02}, False),
        ({"jpeg": 0.02}, False),
        ({"ofa": 0.02}, False),
        ({"sm": None, "dram": None}, True),
    ],
)
def test_measured_idle(
    values: dict[str, float | None], expected: bool, counters: Callable[..., Activity]
) -> None:
    """Every activity that is read is below 1 %."""
    assert is_idle(counters(**values), None, None, None, RULES) is expected


@pytest.mark.parametrize(
    ("utilization", "vitals", "links", "expected"),
    [
        (None, Vitals(), None, None),
        (0.0, None, None, True),
        (0.0, Vitals(), 9e6, True),
        (0.0, Vitals(), 1e7, False),
        (0.01, Vitals(), None, False),
        (0.0, Vitals(encoder_ratio=0.5), None, False),
        (0.0, Vitals(decoder_ratio=0.5), None, False),
        (0.0, Vitals(jpeg_ratio=0.5), None, False),
        (0.0, Vitals(ofa_ratio=0.5), None, False),
    ],
)
def test_idle_by_the_drivers_readings(
    utilization: float | None, vitals: Vitals | None, links: float | None, expected: bool | None
) -> None:
    """Utilization stands in for the engine; loading a model over PCIe is not idle."""
    assert is_idle(None, utilization, vitals, links, RULES) is expected


@pytest.mark.parametrize(("memory_ratio", "expected"), [(None, True), (0.009, True), (0.01, False)])
def test_memory_traffic_without_counters_is_not_idle(
    memory_ratio: float | None, expected: bool
) -> None:
    """Loading a model runs no kernel: without counters it shows in the memory utilization alone."""
    assert is_idle(None, 0.0, Vitals(), None, RULES, memory_ratio) is expected


@pytest.mark.parametrize(("dram", "expected"), [(0.0, True), (None, False)])
def test_counted_dram_goes_before_the_memory_utilization(
    dram: float | None, expected: bool, counters: Callable[..., Activity]
) -> None:
    """The driver's memory utilization decides only where DRAM activity is not counted."""
    assert is_idle(counters(dram=dram), 0.0, None, None, RULES, 0.3) is expected


def test_measured_engine_activity_goes_before_utilization(
    counters: Callable[..., Activity],
) -> None:
    """GR decides where it is read, U where it is not, and without both it is not known."""
    assert is_idle(counters(), 0.5, None, None, RULES) is True
    assert is_idle(counters(engine=None), 0.5, None, None, RULES) is False
    assert is_idle(counters(engine=None), None, None, None, RULES) is None


def test_thresholds_are_configurable(counters: Callable[..., Activity]) -> None:
    """A stricter or laxer rule changes the result."""
    lax = IdleRules(activity_ratio=0.05, link_bytes_per_second=1e9)
    assert is_idle(counters(engine=0.04), None, None, 5e8, lax) is True


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ((), False),
        ((Process(1, "compute", command="python3"),), True),
        ((Process(1, "compute"),), True),
        ((Process(1, "mps", command="python3"),), True),
        ((Process(1, "graphics", command="blender"),), False),
        ((Process(1, "graphics"),), False),
        ((Process(1, "compute", command="nvidia-cuda-mps"),), False),
        ((Process(1, "compute", command="nvidia-cuda-mps-server"),), False),
        ((Process(1, "compute", command="nvidia-persiste"),), False),
        ((Process(1, "compute", command="Xorg"),), False),
        ((Process(1, "compute", command="Xorgy"),), True),
        (
            (
                Process(1, "compute", command="nvidia-cuda-mps"),
                Process(2, "mps", command="train"),
            ),
            True,
        ),
    ],
)
def test_held_by_processes(processes: tuple[Process, ...], expected: bool) -> None:
    """Compute and MPS processes hold unless ignored by name; memory does not matter then."""
    assert is_held(processes, memory(70_000), RULES) is expected


@pytest.mark.parametrize(
    ("used", "coherent", "expected"),
    [
        (memory(501), False, True),
        (memory(500), False, False),
        (memory(501), True, None),
        (None, False, None),
    ],
)
def test_held_by_memory_where_processes_cannot_be_listed(
    used: Memory | None, coherent: bool, expected: bool | None
) -> None:
    """More than 500 MiB holds, except on coherent memory, where it means little."""
    assert is_held(None, used, RULES, coherent_memory=coherent) is expected


def test_the_ignore_list_is_compared_as_the_kernel_cuts_names() -> None:
    """A configured long name matches the 15 characters that /proc shows."""
    rules = IdleRules(ignored_commands=frozenset({"a-very-long-monitor-name"}))
    assert is_held((Process(1, "compute", command="a-very-long-mon"),), None, rules) is False
    assert is_held((Process(1, "compute", command="Xorg"),), None, rules) is True


def test_link_rates_prefer_the_counters(counters: Callable[..., Activity]) -> None:
    """Bytes over the counters' own seconds; the busier direction and the sum of all."""
    activity = counters(
        seconds=2.0,
        pcie_transmit_bytes=2e6,
        pcie_receive_bytes=4e6,
        nvlink_transmit_bytes=8e6,
        nvlink_receive_bytes=6e6,
    )
    vitals = Vitals(pcie_transmit_bytes=1e12, nvlink_transmit_bytes_total=1e12)
    assert link_rates(activity, vitals, Vitals(), 1.0) == LinkRates(
        total=10e6, pcie=2e6, nvlink=4e6
    )


def test_link_rates_from_the_board() -> None:
    """Traffic since the last read, and the growth of the driver's totals."""
    before = Vitals(nvlink_transmit_bytes_total=1e9, nvlink_receive_bytes_total=1e9)
    now = replace(
        before,
        pcie_receive_bytes=5e6,
        nvlink_transmit_bytes_total=1e9 + 4e6,
        nvlink_receive_bytes_total=5e8,
    )
    assert link_rates(None, now, before, 2.0) == LinkRates(total=4.5e6, pcie=2.5e6, nvlink=2e6)
    assert link_rates(None, now, None, 2.0) == LinkRates(total=2.5e6, pcie=2.5e6)
    assert link_rates(None, now, before, None) == LinkRates()
    assert link_rates(None, None, None, 1.0) == LinkRates()
