# SPDX-License-Identifier: Apache-2.0
"""The clock of an interval from samples that do not cover it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.clocks import Clocks, busy_clocks, read_clocks
from exporter.derive.cycles import possible_mean_clock
from exporter.derive.history import NO_HISTORY, ClockHistory
from exporter.model.reading import Activity, Device, Utilization, Vitals
from tests.derive.readings import known

BUSY, IDLE = 1.98e9, 0.345e9
NOW = 1.5e9
SAMPLE = 1 / 6


def of_mix(u: float, seconds: float = SAMPLE, *, one: bool = True) -> Vitals:
    """Samples of a time that was busy for a share `u`; `one` sample, or many that resolve it."""
    mean = u * BUSY + (1 - u) * IDLE
    return Vitals(
        utilization=Utilization(u, u, seconds),
        mean_sm_clock_hertz=mean,
        busy_sm_clock_hertz=mean if one or not u else BUSY,
    )


def after(*mixes: float, one: bool = True, seconds: float = SAMPLE) -> ClockHistory:
    """The history after samples of these shares, with the engine active as much."""
    history = NO_HISTORY
    for u in mixes:
        history = history.heard(of_mix(u, seconds, one=one), seconds).measured(u, seconds)
    return history


def test_without_samples_the_polled_clock_stands() -> None:
    """There is nothing else; where that is not read either, nothing is known."""
    silent = NO_HISTORY.heard(Vitals(), 1.0)
    assert silent.mean_clock(0.5, NOW) == NOW
    assert silent.mean_clock(0.5, None) is None
    assert silent.busy_clock is None
    assert silent.newest_clocks == ()
    assert silent.silent_seconds == 1.0


@pytest.mark.parametrize("engine", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("last", [0.0, 0.3, 1.0])
def test_the_line_carries_samples_over_to_the_interval(engine: float, last: float) -> None:
    """Two clocks, mixed by the engine activity, whatever the last sample was of."""
    history = after(1.0, 0.0, 0.5, last)
    assert history.slope == pytest.approx(BUSY - IDLE)
    expected = engine * BUSY + (1 - engine) * IDLE
    assert history.mean_clock(engine, NOW) == pytest.approx(expected)
    assert history.busy_clock == pytest.approx(BUSY)


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(1e8, 2e9)), min_size=1, max_size=8))
def test_no_line_leads_to_a_clock_that_cannot_be(samples: list[tuple[float, float]]) -> None:
    """Also where the load of the older samples was another one: counters never fall."""
    history = NO_HISTORY
    for u, clock in samples:
        history = history.heard(
            Vitals(
                utilization=Utilization(u, u, SAMPLE),
                mean_sm_clock_hertz=clock,
                busy_sm_clock_hertz=clock,
            ),
            SAMPLE,
        ).measured(None, 1.0)
    assert known(history.busy_clock) > 0.0


def test_a_clock_that_falls_under_load_has_a_negative_slope() -> None:
    """A power cap: the busy clock is the lower one, and no estimate lies below it."""
    history = NO_HISTORY
    for u in (1.0, 0.0, 1.0, 0.5):
        mean = 1.4e9 * u + 1.98e9 * (1 - u)
        vitals = Vitals(utilization=Utilization(u, u, 1.0), mean_sm_clock_hertz=mean)
        history = history.heard(replace(vitals, busy_sm_clock_hertz=mean), 1.0).measured(u, 1.0)
    assert history.slope == pytest.approx(-0.58e9)
    assert history.busy_clock == pytest.approx(1.4e9)
    assert history.mean_clock(1.0, NOW) == pytest.approx(1.4e9)
    assert history.mean_clock(0.0, NOW) == pytest.approx(1.98e9)


def test_without_a_slope_near_samples_stand_for_the_interval() -> None:
    """And the polled clock shows the other end where they are far."""
    history = after(0.5, 0.5, 0.5)
    mean = 0.5 * (BUSY + IDLE)
    assert history.slope is None
    assert history.mean_clock(0.55, BUSY) == pytest.approx(mean)
    assert history.mean_clock(1.0, BUSY) == pytest.approx(BUSY)
    assert history.mean_clock(0.75, BUSY) == pytest.approx((mean + BUSY) / 2)
    assert history.mean_clock(0.0, IDLE) == pytest.approx(IDLE)
    assert history.mean_clock(0.0, BUSY) == pytest.approx(mean)
    assert history.mean_clock(1.0, None) == pytest.approx(mean)


def test_short_gaps_that_only_the_engine_sees_do_not_lower_the_clock() -> None:
    """The utilization is 1 while the engine is active for 60 %: the clock never fell."""
    history = NO_HISTORY
    for u, engine in ((0.0, 0.0), (1.0, 0.6), (0.0, 0.0), (1.0, 0.6), (1.0, 0.6)):
        history = history.heard(of_mix(u, 1.0), 1.0).measured(engine, 1.0)
    assert history.mean_clock(0.6, NOW) == pytest.approx(BUSY)
    assert history.mean_clock(0.3, NOW) == pytest.approx((BUSY + IDLE) / 2)


def test_samples_are_forgotten_when_they_stop() -> None:
    """After three seconds of silence the polled clock stands again."""
    history = after(1.0)
    quiet = history.heard(Vitals(), 3.0)
    assert quiet.mean_clock(1.0, NOW) == pytest.approx(BUSY)
    assert quiet.busy_clock == pytest.approx(BUSY)
    stale = quiet.heard(Vitals(), 0.1)
    assert stale.mean_clock(1.0, NOW) == NOW
    assert stale.busy_clock is None
    again = stale.heard(of_mix(1.0), SAMPLE)
    assert again.busy_clock == pytest.approx(BUSY)
    assert again.silent_seconds == 0.0


def test_old_samples_weigh_less() -> None:
    """After ten seconds 1/e: a line that no longer holds is forgotten."""
    history = after(1.0, seconds=1.0).heard(of_mix(0.0, 10.0), 10.0).measured(0.0, 10.0)
    assert history.past.seconds == pytest.approx(10.0 + 1.0 / 2.718281828)
    assert history.past.u == pytest.approx(1.0 / 2.718281828)
    assert history.engine.seconds == pytest.approx(10.0 + 1.0 / 2.718281828)
    assert history.engine.u == pytest.approx(1.0 / 2.718281828)
    assert history.measured(None, 5.0) == history


@given(
    mixes=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8),
    engine=st.none() | st.floats(0.0, 1.0),
    now=st.none() | st.floats(IDLE, BUSY),
)
def test_two_clocks_never_give_a_third(
    mixes: list[float], engine: float | None, now: float | None
) -> None:
    """Means lie between the clock of idle and that of busy time."""
    history = after(*mixes)
    mean = known(history.mean_clock(engine, now))
    assert IDLE * (1 - 1e-3) <= mean <= BUSY * (1 + 1e-3)


H100 = Device(0, "GPU-0", "NVIDIA H100 80GB HBM3", clock_max_hertz={"sm": 1.98e9})


@pytest.mark.parametrize(
    ("polled", "values", "expected"),
    [
        (1.98e9, {"engine": 0.5, "sm": 0.852}, 0.51 * 1.98e9 / 0.852),
        (0.345e9, {"engine": 0.5, "sm": 0.852}, 0.49 * 0.345e9 / 0.158),
        (1.0e9, {"engine": 0.5, "sm": 0.55}, 0.49 * 1.0e9 / 0.46),
        (1.0e9, {"engine": 0.5, "sm": 0.505}, 1.0e9),
        (1.0e9, {"engine": 0.01, "sm": 0.9}, 1.0e9),
        (1.0e9, {"engine": None, "sm": 0.9}, 1.0e9),
        (1.0e9, {"engine": 1.0, "sm": 1.0}, 1.0e9),
    ],
)
def test_the_shares_bound_a_polled_clock(
    polled: float, values: dict[str, float], expected: float
) -> None:
    """f <= GR x f_max / SM, and (1 - GR) x f_idle <= (1 - SM) x f, but for a point of rounding."""
    activity = Activity("gpm", 1.0, **values)
    assert possible_mean_clock(polled, activity, polled, 1.98e9) == pytest.approx(expected)
    clocks = read_clocks(Vitals(clock_hertz={"sm": polled}), None, H100, NO_HISTORY, activity)
    assert clocks.sm == pytest.approx(expected)


@pytest.mark.parametrize(
    ("clocks", "polled", "values", "expected"),
    [
        (Clocks(sm=1e9, sm_busy=1.5e9), None, {"engine": 0.8, "sm": 0.5}, 1.25e9),
        (Clocks(sm=1e9, sm_busy=1.2e9), None, {"engine": 0.8, "sm": 0.5}, 1.2e9),
        (Clocks(sm=1e9, sm_max=2e9), 1.2e9, {"engine": 0.8, "sm": 0.5}, 1.2e9),
        (Clocks(sm=1e9, sm_max=2e9), 0.5e9, {"engine": 0.8, "sm": 0.5}, 1e9),
        (Clocks(sm=1e9, sm_max=2e9), None, {"engine": 0.5, "sm": 0.8}, 1.6e9),
        (Clocks(sm=1e9, sm_max=1.5e9), None, {"engine": 0.5, "sm": 0.8}, 1.5e9),
        (Clocks(sm=1e9, sm_busy=0.2e9, sm_max=2e9), None, {"engine": 0.9, "sm": 0.5}, 0.8e9 / 0.9),
        (Clocks(sm=1e9, sm_busy=1.4e9, sm_max=2e9), None, {"engine": 0.0, "sm": 0.0}, 1.4e9),
        (Clocks(), 1e9, {"engine": 0.5, "sm": 0.5}, None),
    ],
)
def test_the_busy_clock_agrees_with_the_counters(
    clocks: Clocks, polled: float | None, values: dict[str, float], expected: float | None
) -> None:
    """GR x f_busy <= f, the idle clock is at most the highest one, and SM x f <= GR x f_busy."""
    found = busy_clocks(clocks, Activity("gpm", 1.0, **values), polled).sm_busy
    assert found == (None if expected is None else pytest.approx(expected))
