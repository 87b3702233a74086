# SPDX-License-Identifier: Apache-2.0
"""Reference clocks, and clocks from counted cycles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.clocks import Clocks, clock_ratio, counted_clocks, read_clocks, reference_clock
from exporter.derive.history import NO_HISTORY
from exporter.model.reading import Activity, Utilization, Vitals
from tests.derive.readings import H100, H100_CEILINGS


@pytest.mark.parametrize(
    ("unit", "spec", "expected"),
    [
        ("tensor", {"tensor": 1.83e9, "vector": 1.9e9, "memory": 2e9}, 1.83e9),
        ("tensor", {"vector": 1.9e9}, 1.9e9),
        ("tensor", {}, 1.98e9),
        ("fp64", {"tensor": 1.83e9, "vector": 1.9e9}, 1.9e9),
        ("fma", {"tensor": 1.83e9}, 1.98e9),
        ("int", {"vector": 1.9e9}, 1.9e9),
        ("dram", {"memory": 2e9}, 2e9),
        ("dram", {"vector": 1.9e9}, 2.619e9),
    ],
)
def test_each_unit_has_its_own_reference_clock(
    unit: str, spec: dict[str, float], expected: float
) -> None:
    """The spec's clock of the unit, else the vector clock, else the device's maximum."""
    ceilings = replace(H100_CEILINGS, peak_clock_hertz=spec)
    assert reference_clock(unit, ceilings, H100) == expected


def test_each_use_has_its_own_mean() -> None:
    """Work goes by the mean of all of the time, the time lost to clocks by that of busy time; the
    clock at the end of the interval stands where the driver has no samples."""
    vitals = Vitals(
        utilization=Utilization(0.5, 0.51, 1.0),
        clock_hertz={"sm": 345e6, "memory": 2.619e9},
        busy_sm_clock_hertz=1.7e9,
        mean_sm_clock_hertz=1.0e9,
    )
    clocks = read_clocks(vitals, H100_CEILINGS, H100, NO_HISTORY.heard(vitals, 1.0))
    assert (clocks.sm, clocks.sm_busy) == (1.0e9, 1.7e9)
    assert clocks.ratio("tensor") == pytest.approx(1.0 / 1.83)
    assert clock_ratio("tensor", clocks) == pytest.approx(1.7 / 1.83)
    bare = replace(vitals, busy_sm_clock_hertz=None, mean_sm_clock_hertz=None)
    polled = read_clocks(bare, H100_CEILINGS, H100, NO_HISTORY.heard(bare, 1.0))
    assert (polled.sm, polled.sm_busy) == (345e6, None)


@given(
    true_hertz=st.floats(2e8, 3e9),
    sampled_ratio=st.floats(0.3, 3.0),
    seconds=st.floats(0.1, 10.0),
    sm_count=st.integers(16, 192),
    summed=st.booleans(),
)
def test_counted_cycles_replace_the_sample_whichever_way_they_are_counted(
    true_hertz: float, sampled_ratio: float, seconds: float, sm_count: int, summed: bool
) -> None:
    """Cycles of one SM or summed over all give the same true clock, however bad the sample."""
    cycles = true_hertz * seconds * (sm_count if summed else 1)
    activity = Activity(source="gpm", seconds=seconds, elapsed_cycles=cycles)
    sampled = Clocks(sm=true_hertz * sampled_ratio, vector_reference=2e9)
    clocks = counted_clocks(sampled, activity, sm_count)
    assert clocks.sm == pytest.approx(true_hertz)
    assert clocks.vector_reference == 2e9


def test_a_sample_from_a_pause_does_not_divide_the_cycles_of_a_small_instance() -> None:
    """16 SMs at 1.9 GHz sampled at 345 MHz: 1.9 GHz is possible, 119 MHz is not nearer."""
    activity = Activity(source="gpm", seconds=1.0, elapsed_cycles=1.9e9)
    assert counted_clocks(Clocks(sm=345e6, sm_max=1.98e9), activity, 16).sm == 1.9e9


@pytest.mark.parametrize(
    ("cycles", "sm_count", "sampled"),
    [(None, 132, 1.7e9), (0.0, 132, 1.7e9), (1.7e9, None, 1.7e9), (1.7e9, 132, None)],
)
def test_without_usable_cycles_the_sample_stays(
    cycles: float | None, sm_count: int | None, sampled: float | None
) -> None:
    """No cycles, no SM count or nothing to compare with: the clocks are left as they were."""
    clocks = Clocks(sm=sampled)
    activity = Activity(source="gpm", seconds=1.0, elapsed_cycles=cycles)
    assert counted_clocks(clocks, activity, sm_count) is clocks
