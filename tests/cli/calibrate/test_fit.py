# SPDX-License-Identifier: Apache-2.0
"""The fitted ranges hold the truth of every board that follows the model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.cli.calibrate.fit import fit
from exporter.cli.calibrate.loads import IDLE, LOADS
from exporter.errors import ExporterError
from exporter.model.snapshot import Bounds, PowerModel
from tests.cli.calibrate.truth import CEILINGS, HERTZ, Active, Board

LIMIT_WATTS = 700.0
BY_NAME = {load.name: load for load in (IDLE, *LOADS)}


def power_range(power: PowerModel, active: Active, hertz: float) -> Bounds:
    """The least and the most that a model allows for what a board does."""
    ratio = hertz / power.reference_clock_hertz
    clocks = [ratio**power.clock_exponent.lower, ratio**power.clock_exponent.upper]
    terms = (
        (power.idle_watts, 1.0, 1.0),
        (power.busy_watts, active.utilization, active.utilization),
        (power.tensor_watts, active.tensor * min(clocks), active.tensor * max(clocks)),
        (power.vector_watts, active.vector * min(clocks), active.vector * max(clocks)),
        (power.dram_watts, active.dram, active.dram),
    )
    return Bounds(
        sum(bounds.lower * least for bounds, least, _ in terms) - power.error_watts,
        sum(bounds.upper * most for bounds, _, most in terms) + power.error_watts,
    )


def ratios(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high)


@st.composite
def boards(draw: st.DrawFn) -> Board:
    idle = draw(ratios(5, 120))
    base = draw(ratios(0.35, 1.1))
    zeros = draw(ratios(0.3, 1.0))
    return Board(
        idle=idle,
        context=idle + draw(ratios(0, 80)),
        busy=draw(ratios(0, 60)),
        cache=draw(ratios(0, 250)),
        tensor=draw(ratios(60, 1200)),
        vector=draw(ratios(60, 800)),
        dram=draw(ratios(40, 300)),
        exponent=draw(ratios(1.0, 3.5)),
        zeros=zeros,
        memory_offset=draw(ratios(-0.15, 0.3)),
        clocks={
            "gemm": HERTZ * base,
            "gemm-zeros": HERTZ * draw(ratios(base, 1.2)),
            "fp32": HERTZ * draw(ratios(0.5, 1.2)),
            "fp32-zeros": HERTZ * draw(ratios(0.5, 1.2)),
        },
        gemm_dram=draw(ratios(0, 0.4)),
        strays=draw(ratios(0, 0.1)),
    )


@st.composite
def mixes(draw: st.DrawFn) -> Active:
    busy = draw(ratios(0, 1))
    return Active(
        utilization=busy,
        tensor=busy * draw(ratios(0, 1)),
        vector=busy * draw(ratios(0, 1)),
        dram=draw(ratios(0, 1)),
        operands=draw(ratios(0, 1)),
        cache=busy * draw(ratios(0, 1)),
    )


SLOW = Board(
    clocks=dict.fromkeys(("gemm", "gemm-zeros", "fp32", "fp32-zeros"), 0.5 * HERTZ),
    zeros=0.9,
    gemm_dram=0.0,
    strays=0.0,
    memory_offset=0.0,
)
"""Its power limit holds the clock down."""


@example(SLOW, Active(1.0, tensor=1.0, operands=0.0), 0.5)
@given(boards(), mixes(), st.floats(0.3, 1.3))
def test_every_mix_of_work_lies_within_the_model(board: Board, mix: Active, clock: float) -> None:
    """At any clock, with operands between zeros and random ones."""
    power = fit(board.all_measured(), CEILINGS, LIMIT_WATTS)
    operands = board.zeros + (1 - board.zeros) * mix.operands
    mix = replace(mix, operands=operands)
    allowed = power_range(power, mix, HERTZ * clock)
    assert allowed.lower <= board.watts(mix, HERTZ * clock) <= allowed.upper


@example(SLOW, [0.0] * 11, 0.0)
@given(boards(), st.lists(st.floats(-1, 1), min_size=11, max_size=11), st.floats(0, 8))
def test_every_coefficient_lies_in_its_range(
    board: Board, signs: list[float], noise: float
) -> None:
    """Also where each load was measured with an error of chance."""
    measured = {
        name: board.measured(load, sign * noise, noise)
        for (name, load), sign in zip(BY_NAME.items(), signs, strict=True)
    }
    power = fit(measured, CEILINGS, LIMIT_WATTS)
    at = (power.reference_clock_hertz / HERTZ) ** board.exponent
    for bounds, random in (
        (power.tensor_watts, board.tensor * at),
        (power.vector_watts, board.vector * at),
        (power.dram_watts, board.dram),
    ):
        assert bounds.lower <= board.zeros * random * (1 + 1e-9)
        assert random <= bounds.upper * (1 + 1e-9)
        assert 0 < bounds.lower <= bounds.upper
    assert power.idle_watts.lower <= board.idle <= power.idle_watts.upper
    assert power.idle_watts.lower <= board.context <= power.idle_watts.upper
    assert power.busy_watts.upper >= board.busy + board.cache - 1e-9
    spinning = board.context + board.busy
    assert power.idle_watts.lower + power.busy_watts.lower <= spinning + 1e-9
    assert 0 <= power.busy_watts.lower <= power.busy_watts.upper


def test_the_ranges_are_useful() -> None:
    """An ordinary board: narrower than what its architecture alone allows."""
    power = fit(Board().all_measured(), CEILINGS, LIMIT_WATTS)
    assert power.calibrated
    assert power.idle_watts == Bounds(70.0, 120.0)
    assert power.busy_watts.lower == pytest.approx((145 - 70) / 1.15)
    assert power.busy_watts.upper == pytest.approx(175 * 1.15)
    assert 150 < power.tensor_watts.lower < 500 < power.tensor_watts.upper < 800
    assert 100 < power.vector_watts.lower < 350 < power.vector_watts.upper < 600
    assert 60 < power.dram_watts.lower < 180 < power.dram_watts.upper < 280
    assert power.error_watts == 21.0
    assert power.reference_clock_hertz == HERTZ


def test_chance_makes_the_ranges_wider() -> None:
    """At both ends of each."""
    sure = fit(Board().all_measured(), CEILINGS, LIMIT_WATTS)
    noisy = {name: Board().measured(load, 0.0, 3.0) for name, load in BY_NAME.items()}
    unsure = fit(noisy, CEILINGS, LIMIT_WATTS)
    for name in ("idle_watts", "tensor_watts", "vector_watts", "dram_watts"):
        narrow, wide = getattr(sure, name), getattr(unsure, name)
        assert wide.lower < narrow.lower
        assert narrow.upper < wide.upper
    assert unsure.busy_watts.upper > sure.busy_watts.upper
    assert unsure.error_watts == sure.error_watts + 3.0


@given(st.floats(-0.3, 0.3))
def test_the_memory_margin_covers_what_was_seen(offset: float) -> None:
    """In each copy DRAM activity is at most the driver's memory utilization and the margin."""
    board = Board(memory_offset=offset)
    power = fit(board.all_measured(), CEILINGS, LIMIT_WATTS)
    margin = power.memory_margin_ratio
    assert margin is not None
    assert margin <= max(0.03, -offset + 0.12)
    for name in ("copy", "copy-zeros", "copy-half"):
        active = board.active(BY_NAME[name])
        assert active.dram <= board.memory_utilization(active) + margin


def test_without_memory_utilization_or_bandwidth_there_is_no_margin() -> None:
    """And the ranges are wider, not gone."""
    measured = Board().all_measured()
    known = fit(measured, CEILINGS, LIMIT_WATTS)
    mute = {name: replace(each, memory_utilization=None) for name, each in measured.items()}
    for power in (
        fit(mute, CEILINGS, LIMIT_WATTS),
        fit(measured, replace(CEILINGS, memory_bandwidth_bytes_per_second=None), LIMIT_WATTS),
    ):
        assert power.memory_margin_ratio is None
        assert power.tensor_watts.lower < known.tensor_watts.lower


def test_peaks_that_are_not_known_make_the_ranges_wider() -> None:
    """Derived ones may be off by a quarter; without any the kernels are at least half busy."""
    measured = Board().all_measured()
    listed = fit(measured, CEILINGS, LIMIT_WATTS)
    derived = fit(measured, replace(CEILINGS, spec="derived"), LIMIT_WATTS)
    unknown = fit(measured, replace(CEILINGS, peak_flops_per_second={}), LIMIT_WATTS)
    for wider, narrower in ((derived, listed), (unknown, derived)):
        assert wider.tensor_watts.upper > narrower.tensor_watts.upper
    assert derived.tensor_watts.lower < listed.tensor_watts.lower
    assert unknown.tensor_watts.lower < 500 < unknown.tensor_watts.upper


def test_without_tensor_cores() -> None:
    """There is no such load; the watts of the vector pipes stand in for them."""
    measured = Board().all_measured()
    del measured["gemm"], measured["gemm-zeros"]
    power = fit(measured, replace(CEILINGS, assumed_precision=None), LIMIT_WATTS)
    assert power.tensor_watts.upper == power.vector_watts.upper
    assert power.reference_clock_hertz == HERTZ


def test_loads_that_draw_nothing() -> None:
    """A sensor that stands still is no calibration."""
    measured = {name: replace(each, watts=70.0) for name, each in Board().all_measured().items()}
    with pytest.raises(ExporterError, match="no load draws more power than idle"):
        fit(measured, CEILINGS, LIMIT_WATTS)
