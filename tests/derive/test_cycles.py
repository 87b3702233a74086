# SPDX-License-Identifier: Apache-2.0
"""Counters that count cycles of a clock that moves: work, time parts and limiter as they were.

Each test drives the fake driver through session, publisher and page, and works out the truth from
the waves of its scenario.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.cycles import in_cycles, in_time, shows_cycles, time_per_cycle
from exporter.model.reading import Activity
from tests.derive.driven import Fake, Page
from tests.derive.readings import known
from tests.fake_nvml import integral, square

Open = Callable[..., Any]
BUSY_MHZ, IDLE_MHZ = 1980.0, 345.0
BF16_PER_CYCLE = 989.4e12 / 1830e6
"""FLOP of a whole H100 SXM per cycle."""
DRAM_BYTES_PER_SECOND = 2619e6 * 2 * 5120 / 8
DRAM = 0.1
INTERVALS = (0.1, 1.0, 2.5)


def duty_cycle(
    period: float, duty: float, sm: float = 1.0, tensor: float = 0.9, **gpm: Any
) -> dict[str, Any]:
    """An H100 that works for a part of each period, and lowers its clock for the rest."""
    return {
        "utilization": square(period, duty, 100),
        "clocks": {"sm": square(period, duty, BUSY_MHZ, IDLE_MHZ)},
        "gpm": {
            "graphics": square(period, duty, 100),
            "sm": square(period, duty, 100 * sm),
            "tensor": square(period, duty, 100 * tensor),
            "hmma": square(period, duty, 100 * tensor),
            "dram": square(period, duty, 100 * DRAM),
            **gpm,
        },
    }


def longest(page: Page) -> str:
    """The limiter of most of the time."""
    limited = page.by("gpu_limited_seconds_total", "limiter")
    return max(limited, key=limited.__getitem__)


def grown(before: Page, after: Page, name: str, **labels: str) -> float:
    """By how much a counter grew from one page to the other."""
    return (after(name, **labels) or 0.0) - (before(name, **labels) or 0.0)


def parts_seconds(page: Page) -> dict[str, float]:
    return page.by("gpu_time_seconds_total", "part")


def parts_of(page: Page) -> dict[str, float]:
    """The time parts as shares of the observed time."""
    parts = page.by("gpu_time_seconds_total", "part")
    observed = known(page("gpu_observed_seconds_total", reading="activity"))
    assert observed == pytest.approx(sum(parts.values()))
    return {part: seconds / observed for part, seconds in parts.items()}


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize(
    ("period", "duty", "sm"),
    [
        (0.02, 0.5, 1.0),
        (0.02, 0.05, 0.4),
        (0.5, 0.2, 1.0),
        (1.0, 0.05, 1.0),
        (1.0, 0.2, 0.4),
        (1.0, 0.5, 1.0),
        (5.0, 0.2, 1.0),
        (5.0, 0.5, 0.4),
        (5.0, 0.9, 1.0),
    ],
)
def test_a_duty_cycle_reads_as_what_it_is(
    open_gpu: Open, interval: float, period: float, duty: float, sm: float
) -> None:
    """The clock falls from 1980 to 345 MHz in the pauses: FLOPs within 2 %, idle time within 2
    points, none of it lost to the clock, and the limiter of a mostly idle GPU is idle."""
    tensor, seconds = 0.9 * sm, 10.0 if interval < 1.0 else 20.0
    fake = Fake(open_gpu(**duty_cycle(period, duty, sm, tensor)), interval)
    first = fake.run(2.5)  # the first 0.1 s have no clock sample
    page = fake.run(seconds)

    active = duty * tensor * seconds
    work = grown(first, page, "gpu_flops_total", precision="bf16_tensor")
    assert work == pytest.approx(active * BF16_PER_CYCLE * BUSY_MHZ * 1e6, rel=0.02)
    moved = grown(first, page, "gpu_dram_bytes_total")
    assert moved == pytest.approx(duty * DRAM * DRAM_BYTES_PER_SECOND * seconds)
    before, after = parts_seconds(first), parts_seconds(page)
    parts = {part: (after[part] - before[part]) / seconds for part in after}
    assert parts["idle"] == pytest.approx(1 - duty, abs=0.02)
    if duty != 0.5:
        assert longest(page) == ("idle" if duty < 0.5 else "compute")
    saturated = grown(first, page, "gpu_saturation_seconds_total") / seconds
    assert saturated == pytest.approx(parts["clock"] + parts["saturated"])
    assert saturated <= 1 - parts["idle"] + 1e-9
    if sm == 1.0:
        assert saturated == pytest.approx(active / seconds, rel=0.01)
        assert parts["narrow"] == pytest.approx(0.0, abs=0.01)
        assert parts["unsaturated"] == pytest.approx(duty * (sm - tensor), abs=0.01)
        assert parts["clock"] == pytest.approx(0.0, abs=0.01)
    elif period >= 1.0 and duty <= 0.2:
        # Few SMs: SMs active for longer than the engine show the cycles at a low duty only.
        assert parts["narrow"] == pytest.approx(duty * (1 - sm), abs=0.02)
        assert saturated == pytest.approx(active / seconds, rel=0.15)


@pytest.mark.parametrize("interval", INTERVALS)
def test_the_raw_shares_stay_those_of_the_driver(open_gpu: Open, interval: float) -> None:
    """Gauges and their integrals are shares of cycles: 1980 of 1980 + 345."""
    page = Fake(open_gpu(**duty_cycle(1.0 if interval >= 1 else 0.1, 0.5)), interval).run(10.0)

    cycles = BUSY_MHZ / (BUSY_MHZ + IDLE_MHZ)
    exact = interval != 2.5  # its windows do not hold whole periods
    if exact:
        assert page("gpu_sm_active_ratio") == pytest.approx(cycles)
        assert page("gpu_sm_active_seconds_total") == pytest.approx(10 * cycles)
        tensor = page("gpu_pipe_active_seconds_total", pipe="tensor")
        assert tensor == pytest.approx(9 * cycles)
    assert page("gpu_engine_active_seconds_total") == pytest.approx(5.0)


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize(("period", "duty"), [(0.3, 0.5), (5.0, 0.2), (7.0, 0.05)])
@pytest.mark.parametrize("counts", ["summed", "averaged"])
def test_counted_cycles_give_the_work_exactly(
    open_gpu: Open, interval: float, period: float, duty: float, counts: str
) -> None:
    """No clock sample enters where the driver counts the cycles, however it counts them."""
    wave = duty_cycle(period, duty, cumulative=1, cycles=counts)
    fake = Fake(open_gpu(**wave), interval)
    fake.run(interval)  # growth needs two readings
    page = fake.run(25.0)

    seconds = 25.0 + interval
    busy = integral(wave["gpm"]["tensor"], 0, seconds) / 100
    work = page("gpu_flops_total", precision="bf16_tensor")
    assert work == pytest.approx(busy * BF16_PER_CYCLE * BUSY_MHZ * 1e6, rel=0.02)
    idle = 1 - integral(wave["gpm"]["graphics"], 0, seconds) / 100 / seconds
    assert parts_of(page)["idle"] == pytest.approx(idle, abs=0.001)


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize(("period", "duty"), [(5.0, 0.5), (5.0, 0.2)])
def test_a_driver_that_counts_time_keeps_its_parts(
    open_gpu: Open, interval: float, period: float, duty: float
) -> None:
    """Nothing shows cycles there, so shares of time are left as they are."""
    wave = duty_cycle(period, duty, sm=0.8, tensor=0.6, semantics="time")
    parts = parts_of(Fake(open_gpu(**wave), interval).run(20.0))

    assert parts["idle"] == pytest.approx(1 - duty)
    assert parts["narrow"] == pytest.approx(0.2 * duty)
    assert parts["unsaturated"] == pytest.approx(0.2 * duty)
    assert parts["saturated"] == pytest.approx(0.6 * duty, abs=0.02)


@pytest.mark.parametrize("interval", INTERVALS)
def test_few_sms_are_converted_once_the_counters_are_known(open_gpu: Open, interval: float) -> None:
    """A kernel on 40 % of the SMs shows nothing by itself; a fuller one before it showed that the
    counters count cycles, and that is not forgotten."""
    rig = open_gpu(**duty_cycle(5.0, 0.5))
    fake = Fake(rig, interval)
    fake.run(10.0)
    before = parts_seconds(fake.page)
    rig.fake.device(0, **duty_cycle(5.0, 0.5, sm=0.4, tensor=0.3))
    after = parts_seconds(fake.run(20.0))

    parts = {part: (after[part] - before[part]) / 20.0 for part in after}
    assert parts["idle"] == pytest.approx(0.5, abs=0.005)
    assert parts["narrow"] == pytest.approx(0.3, abs=0.02)
    assert parts["unsaturated"] == pytest.approx(0.05, abs=0.01)
    assert parts["clock"] + parts["saturated"] == pytest.approx(0.15, abs=0.015)


RATIO = st.floats(0.0, 1.0)
CLOCK = st.none() | st.floats(1e8, 3e9)


@given(engine=RATIO, sm=RATIO, tensor=RATIO, mean=CLOCK, busy=CLOCK, counts=st.booleans())
def test_no_share_of_time_exceeds_the_engine(
    engine: float,
    sm: float,
    tensor: float,
    mean: float | None,
    busy: float | None,
    counts: bool,
) -> None:
    """Once counters count cycles; proportions stay, and engine activity itself is left alone."""
    activity = Activity("gpm", 1.0, engine=engine, sm=sm, tensor=tensor * sm, dram=0.5)
    factor = time_per_cycle(activity, mean, busy, counts_cycles=counts)
    timed = in_time(activity, factor)
    assert (timed.engine, timed.dram) == (engine, 0.5)
    if not counts:
        assert timed == activity
    elif engine >= 0.04 * sm:
        assert known(timed.sm) <= engine * (1 + 1e-9)
        assert known(timed.tensor) == pytest.approx(tensor * known(timed.sm))
    bound = known(in_cycles(activity, factor).engine)
    if counts and engine >= 0.04 * sm and factor:
        assert bound >= sm * (1 - 1e-9)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"engine": 0.5, "sm": 0.52}, True),
        ({"engine": 0.5, "sm": 0.505}, False),
        ({"engine": 0.5, "sm": 0.4, "tensor": 0.52}, True),
        ({"engine": 0.5, "sm": 0.4, "dram": 0.9}, False),
        ({"engine": 0.01, "sm": 0.9}, False),
        ({"engine": 0.05, "sm": 0.9}, True),
        ({"engine": None, "sm": 0.9}, False),
        ({"engine": 0.5, "sm": 0.4, "elapsed_cycles": 1e9}, True),
    ],
)
def test_what_shows_that_counters_count_cycles(values: dict[str, float], shown: bool) -> None:
    """SMs that are active for longer than the engine, but not against all reason; DRAM does not."""
    assert shows_cycles(Activity("gpm", 1.0, **values)) == shown


def test_a_dead_engine_counter_does_not_empty_the_gpu() -> None:
    """SMs are busy and the engine is not: that contradicts itself, and nothing is converted."""
    activity = Activity("gpm", 1.0, engine=0.0, sm=0.8)
    assert time_per_cycle(activity, 1e9, 2e9, counts_cycles=True) == 1.0
