# SPDX-License-Identifier: Apache-2.0
"""Bounds by power: on devices whose truth is known, they hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.derive.power import ByPower, PowerMeans, estimated_by_power, power_bounds
from exporter.model.snapshot import Bounds, Ceilings, PowerModel
from exporter.specs.power import SHARES
from tests.derive import power_widths
from tests.derive.power_models import BOARDS, UNITS, calibrated, narrow, wide

LIMIT, CLOCK = 300.0, 2e9
MODELS: Mapping[str, PowerModel] = {
    "hbm": wide("hbm", (8, 0), LIMIT, CLOCK),
    "geforce": wide("geforce", (8, 9), LIMIT, CLOCK),
    "small": wide("small", (7, 5), LIMIT, CLOCK),
    "calibrated": calibrated(BOARDS["geforce"], LIMIT, CLOCK),
    "narrow": narrow(LIMIT, CLOCK),
}
LEAST_NEAR_LIMIT = {
    "hbm": 0.05,
    "geforce": 0.05,
    "small": 0.005,
    "calibrated": 0.15,
    "narrow": 0.28,
}
ROUNDING = 1e-9
AMPERE = Ceilings(
    spec="test",
    peak_flops_per_second={
        "fp64": 1e13,
        "fp32": 2e13,
        "tf32_tensor": 1.5e14,
        "bf16_tensor": 3e14,
        "fp16_tensor": 3e14,
    },
    peak_clock_hertz={"vector": CLOCK, "tensor": CLOCK},
)
GEFORCE = Ceilings(
    spec="test",
    peak_flops_per_second={"fp64": 1e12, "fp32": 6.4e13, "bf16_tensor": 1.6e14},
    peak_clock_hertz={"vector": CLOCK, "tensor": CLOCK},
)


class Phase(NamedTuple):
    """A part of a window in which nothing changes: where each coefficient lies within its bounds,
    and what worked."""

    seconds: float
    runs: float
    units: tuple[float, float, float]
    """Of the running time."""
    clock: float
    within: tuple[float, ...]


class Truth(NamedTuple):
    """What was so over a window."""

    watts: float
    runs: float
    means: Mapping[str, float]
    highest: float
    """The mean of the busiest unit of each phase."""
    clocks: Bounds
    tensor_cycles: float


RATIO = st.floats(0.0, 1.0)
PHASE = st.builds(
    Phase,
    seconds=st.floats(0.1, 10.0),
    runs=st.one_of(RATIO, st.just(1.0)),
    units=st.tuples(RATIO, RATIO, RATIO),
    clock=st.floats(0.2, 1.3),
    within=st.tuples(*[st.one_of(RATIO, st.sampled_from([0.0, 1.0]))] * 6),
)


def at(bounds: Bounds, within: float) -> float:
    return bounds.lower + within * (bounds.upper - bounds.lower)


def truth_of(phases: list[Phase], model: PowerModel, noise: float) -> Truth:
    """Add up phases: independent of the code under test but for the equation of the model."""
    seconds = sum(phase.seconds for phase in phases)
    watts = runs = highest = cycles = 0.0
    means = dict.fromkeys(UNITS, 0.0)
    for phase in phases:
        weight = phase.seconds / seconds
        idle, busy, tensor, vector, dram, g = phase.within
        t, x, d = (phase.runs * unit for unit in phase.units)
        c = phase.clock ** at(model.clock_exponent, g)
        watts += weight * (
            at(model.idle_watts, idle)
            + at(model.busy_watts, busy) * phase.runs
            + c * (at(model.tensor_watts, tensor) * t + at(model.vector_watts, vector) * x)
            + at(model.dram_watts, dram) * d
        )
        runs += weight * phase.runs
        for unit, ratio in zip(UNITS, (t, x, d), strict=True):
            means[unit] += weight * ratio
        highest += weight * max(t, x, d)
        cycles += weight * t * phase.clock
    clocks = [phase.clock * CLOCK for phase in phases]
    bounds = Bounds(min(clocks), max(clocks))
    return Truth(max(0.0, watts + noise * model.error_watts), runs, means, highest, bounds, cycles)


@pytest.mark.parametrize("kind", MODELS)
@settings(max_examples=400, deadline=None)
@given(
    phases=st.lists(PHASE, min_size=1, max_size=4),
    noise=st.floats(-0.999, 0.999),
    slack=st.tuples(*[st.floats(0.0, 0.1)] * 3),
    polled=st.floats(0.0, 0.2),
)
def test_the_truth_lies_within(
    kind: str,
    phases: list[Phase],
    noise: float,
    slack: tuple[float, float, float],
    polled: float,
) -> None:
    """Any mix of phases, each with coefficients of its own; readings may be wider than the truth,
    and the power may be polled."""
    model = MODELS[kind]
    truth = truth_of(phases, model, noise)
    off = polled * truth.watts
    window = PowerMeans(
        power_watts=Bounds(truth.watts - slack[0] * off, truth.watts + off),
        utilization=Bounds(truth.runs - slack[1] * truth.runs, min(1.0, truth.runs + slack[1])),
        memory_upper_ratio=None,
        clock_hertz=Bounds(
            truth.clocks.lower * (1 - slack[2]), truth.clocks.upper * (1 + slack[2])
        ),
    )
    dram = min(1.0, truth.means["dram"] + slack[1])
    bounds = power_bounds(window, model, dram)
    assert bounds is not None
    for unit in UNITS:
        found: Bounds = getattr(bounds, unit)
        assert found.lower - ROUNDING <= truth.means[unit] <= found.upper + ROUNDING, unit
    assert bounds.saturation.lower <= max(truth.means.values()) + ROUNDING
    assert truth.highest <= bounds.saturation.upper + ROUNDING
    assert bounds.tensor_cycles_lower <= truth.tensor_cycles + ROUNDING


@given(
    watts=st.floats(0.0, 2 * LIMIT),
    runs=st.floats(0.0, 1.0),
    clocks=st.tuples(st.floats(0.0, 1.3), st.floats(0.05, 1.3)),
    dram=st.floats(0.0, 1.0),
    kind=st.sampled_from(sorted(MODELS)),
)
def test_bounds_are_in_order_or_absent(
    watts: float, runs: float, clocks: tuple[float, float], dram: float, kind: str
) -> None:
    low, high = sorted(clocks)
    window = PowerMeans(
        Bounds(watts, watts), Bounds(runs / 2, runs), None, Bounds(low * CLOCK, high * CLOCK)
    )
    bounds = power_bounds(window, MODELS[kind], dram)
    if bounds is None:
        return
    for found, cap in (
        (bounds.saturation, 1.0),
        (bounds.tensor, runs),
        (bounds.vector, runs),
        (bounds.dram, dram),
    ):
        assert 0.0 <= found.lower <= found.upper + ROUNDING <= cap + 2 * ROUNDING
    assert (
        bounds.saturation.lower
        >= max(bounds.tensor.lower, bounds.vector.lower, bounds.dram.lower) - ROUNDING
    )


def estimate(means: PowerMeans, model: PowerModel, ceilings: Ceilings = AMPERE) -> ByPower:
    return estimated_by_power(means, model, ceilings, (8, 0), CLOCK, tensor_cores=True)


def window(
    watts: float, runs: float = 1.0, memory: float | None = 0.3, clock: float = 1.0
) -> PowerMeans:
    """Return the means of a steady load: `watts` are over the limit."""
    return PowerMeans(
        Bounds(watts * LIMIT, watts * LIMIT),
        Bounds(max(0.0, runs - 0.1), runs),
        memory,
        Bounds(0.95 * clock * CLOCK, 1.05 * clock * CLOCK),
    )


@pytest.mark.parametrize("kind", MODELS)
def test_a_gpu_near_its_limit_is_not_idle_at_its_units(kind: str) -> None:
    for clock in (0.75, 1.0):
        found = estimate(window(0.95, 0.79, clock=clock), MODELS[kind])
        assert found.fits
        assert found.saturation.bounds.lower >= LEAST_NEAR_LIMIT[kind]
        assert found.saturation.bounds.upper == pytest.approx(0.79)


def test_a_spin_is_seen_where_the_model_is_narrow() -> None:
    """70 W of 300 at a utilization of 1: idle and one SM are 66."""
    found = estimate(window(70 / 300, memory=0.01), MODELS["narrow"], AMPERE)
    assert found.saturation.bounds.upper < 0.35
    assert {name for name, each in found.saturation.unmeasured.items() if each.upper == 1.0} == {
        "sm"
    }
    assert found.flops_lower_per_second == 0.0


def test_few_fp64_units_may_be_full_at_any_power() -> None:
    """A GeForce has two for 128 FP32 lanes: full, they draw next to nothing."""
    peaks = {name: peak for name, peak in GEFORCE.peak_flops_per_second.items() if name != "fp64"}
    unknown = replace(GEFORCE, peak_flops_per_second=peaks)
    for ceilings in (GEFORCE, unknown):
        found = estimate(window(70 / 300, memory=0.01), MODELS["narrow"], ceilings).saturation
        assert found.unmeasured["fp64"] == found.bounds == Bounds(0.0, 1.0)
        assert found.unmeasured["tensor"].upper < 0.35


def test_certain_tensor_work_counts_at_the_slowest_precision() -> None:
    """Calibrated, at the limit with the memory at rest and no more than 0.9 of the tensor pipe."""
    model = narrow(LIMIT, CLOCK, vector=0.1, dram=0.1, tensor=0.75, busy=0.03, idle=0.05)
    means = PowerMeans(Bounds(255, 255), Bounds(0.9, 1.0), 0.0, Bounds(1.9e9, CLOCK))
    found = estimate(means, model)
    # The rest draws 24 + 18 + 0.08 x 39 + 39 W at most; 1 W is rounding of none.
    certain = (255 - 15 - 24 - 18 - 39 - 0.08 * 39) / (0.825 * LIMIT)
    assert found.saturation.unmeasured["tensor"].lower == pytest.approx(certain)
    assert found.flops_lower_per_second == pytest.approx(certain * 1e13)  # FP64 on tensor cores


@pytest.mark.parametrize("watts", [0.0, 3.0])
def test_where_the_model_does_not_hold_nothing_changes(watts: float) -> None:
    """Less than an idle board, more than all units together: other boards, other sensors."""
    model = narrow(LIMIT, CLOCK)
    found = estimate(window(watts), model)
    assert not found.fits
    assert found.saturation.bounds == Bounds(0.0, 1.0)
    assert found.flops_lower_per_second == 0.0


def test_without_tensor_cores_power_is_that_of_the_others() -> None:
    model = narrow(LIMIT, CLOCK)
    with_them = power_bounds(window(0.6), model, 0.38)
    without = power_bounds(window(0.6), model, 0.38, tensor_cores=False)
    assert with_them is not None
    assert without is not None
    assert without.tensor == Bounds(0.0, 0.0)
    assert without.vector.lower > with_them.vector.lower == 0.0


def test_the_grid_of_the_documentation_holds() -> None:
    """The loads whose widths are published, on the boards that they are published of."""
    for kind, board in BOARDS.items():
        models = [wide(*key, 1.0, power_widths.CLOCK) for key in SHARES if key[0] == kind]
        models.append(calibrated(board, 1.0, power_widths.CLOCK))
        for load in (*power_widths.GRID, *power_widths.LOADS.values()):
            watts, clock = power_widths.drawn(board, load)
            for off in (-0.05, 0.0, 0.05):
                means = power_widths.means(watts + off, clock, load.runs, load.dram)
                for model in models:
                    bounds = power_widths.by_power(means, model, kind)
                    assert bounds.lower - ROUNDING <= load.saturation <= bounds.upper + ROUNDING


def test_the_documentation_has_the_widths() -> None:
    text = (Path(__file__).parents[2] / "docs" / "saturation.md").read_text(encoding="utf-8")
    missing = [row for row in power_widths.rows() if row not in text]
    assert not missing, "python -m tests.derive.power_widths prints them"
