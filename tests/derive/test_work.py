# SPDX-License-Identifier: Apache-2.0
"""What the FLOPs that jobs state say of a GPU without counters: bounds, and likely activity."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.saturation import estimated
from exporter.derive.work import (
    Rates,
    Work,
    busier,
    model_flops_utilization,
    pipe_estimates,
    rates_of_work,
    with_estimates,
    with_faster,
    worked,
)
from exporter.model.reading import Device, Utilization, Vitals
from exporter.model.snapshot import Bounds, Roofline, Saturation
from exporter.specs.precisions import pipe_peak
from tests.derive.readings import A100, A100_CEILINGS, known

VITALS = Vitals(clock_hertz={"sm": 1.2e9})


@pytest.mark.parametrize(
    ("precisions", "tensor"),
    [
        ({"bf16_tensor"}, 312e12),
        ({"tf32_tensor"}, 156e12),
        ({"tf32_tensor", "bf16_tensor"}, 312e12),
        (None, 1248e12),
        ({"fp8_tensor"}, 1248e12),  # which an A100 lacks: it may be anything
    ],
)
def test_the_fastest_that_the_work_may_have_been(
    precisions: set[str] | None, tensor: float
) -> None:
    rates = known(rates_of_work(A100_CEILINGS, VITALS, A100, precisions))
    assert rates.tensor == tensor
    assert rates.vector >= 19.5e12 + 78e12


def test_without_peak_or_clock_nothing_follows() -> None:
    bare = Device(index=0, uuid="GPU-a", name="A100")
    assert rates_of_work(A100_CEILINGS, Vitals(), bare, {"bf16_tensor"}) is None


shares = st.floats(0.0, 1.0)


@given(shares, shares, shares, st.floats(0.5, 1.0))
def test_the_truth_stays_inside(
    utilization: float, tensor: float, vector: float, rate: float
) -> None:
    """Pipes that work for parts of the busy time, at up to their full rate, state what they did."""
    rates = Rates(312e12, 97.5e12)
    tensor, vector = tensor * utilization, vector * utilization
    done = rate * (tensor * rates.tensor + vector * rates.vector)
    before = estimated(Utilization(utilization, utilization, 1.0))
    found = busier(before, Work(done, done), rates)
    slack = 1e-9
    assert found.bounds.lower <= max(tensor, vector) + slack
    assert found.unmeasured["tensor"].lower <= tensor + slack
    assert found.unmeasured["sm"].lower <= max(tensor, vector) + slack
    for bounds in (found.bounds, *found.unmeasured.values()):
        assert 0.0 <= bounds.lower <= bounds.upper
    assert found.bounds.upper == before.bounds.upper


def test_work_that_only_a_tensor_pipe_can_have_done() -> None:
    """Half of the tensor peak: vector pipes at full rate explain a fifth of the GPU at most."""
    rates = Rates(312e12, 20e12)
    found = busier(estimated(Utilization(1.0, 1.0, 1.0)), Work(156e12, 156e12), rates)
    assert found.unmeasured["tensor"].lower == pytest.approx((156 - 20) / 312)
    assert found.bounds.lower == pytest.approx(156 / 332)


def test_a_height_on_the_roofline() -> None:
    """What is stated is shown; it bounds the work from below only where nothing is counted."""
    before = Roofline(flops_bounds_per_second=Bounds(0.0, 300e12))
    work = Work(120e12, 100e12)
    alone = worked(before, work, 120e12, measured=False)
    assert alone.flops_bounds_per_second == Bounds(100e12, 300e12)
    beside = worked(before, work, 120e12, measured=True)
    assert beside.flops_bounds_per_second == Bounds(0.0, 300e12)
    assert alone.stated_flops_per_second == beside.stated_flops_per_second == 120e12


@pytest.mark.parametrize(
    ("reported", "peak"),
    [
        ("bf16", "bf16_tensor"),
        ("16-mixed", "fp16_tensor"),
        ("tf32", "tf32_tensor"),
        ("high", "tf32_tensor"),
        ("fp32", "fp32"),
        ("highest", "fp32"),
        ("fp64", None),
        ("martian", None),
    ],
)
def test_the_pipe_that_a_precision_stands_for(reported: str, peak: str | None) -> None:
    assert pipe_peak(reported) == peak


def test_counted_work_over_the_peak_at_the_present_clock() -> None:
    """A fifth of what the tensor pipe does at 1.2 of 1.41 GHz."""
    peak = 312e12 * 1.2 / 1.41
    work = Work(0.2 * peak, flops_per_second_by_peak={"bf16_tensor": 0.2 * peak})
    assert pipe_estimates(work, A100_CEILINGS, VITALS, A100) == {"tensor": pytest.approx(0.2)}
    both = replace(work, flops_per_second_by_peak={"bf16_tensor": 0.1 * peak, "fp32": 1e12})
    fma = 1e12 / (19.5e12 * 1.2 / 1.41)
    found = pipe_estimates(both, A100_CEILINGS, VITALS, A100)
    assert found == {"tensor": pytest.approx(0.1), "fma": pytest.approx(fma)}


def test_mfu_is_against_the_datasheet_peak_of_the_stated_precision() -> None:
    done = {"bf16_tensor": 78e12, "fp32": 1.95e12}
    mfu = model_flops_utilization(Work(1e12, flops_per_second_by_peak=done), A100_CEILINGS)
    assert mfu == pytest.approx(0.25 + 0.1)
    unknown = Work(1e12, flops_per_second_by_peak={"fp8_tensor": 1e12})
    assert model_flops_utilization(unknown, A100_CEILINGS) is None
    assert model_flops_utilization(Work(1e12), A100_CEILINGS) is None


@pytest.mark.parametrize(
    "work",
    [
        Work(1e12),
        Work(1e12, flops_per_second_by_peak={"fp8_tensor": 1e12}),  # which an A100 lacks
        with_faster(Work(1e12, 0.0, frozenset({"bf16_tensor"}), {"bf16_tensor": 1e12})),
    ],
)
def test_work_whose_pipe_or_clock_cannot_be_told_estimates_nothing(work: Work) -> None:
    assert pipe_estimates(work, A100_CEILINGS, VITALS, A100) == {}
    told = Work(1e12, flops_per_second_by_peak={"bf16_tensor": 1e12})
    assert pipe_estimates(told, A100_CEILINGS, Vitals(), A100) == {}


@given(
    st.dictionaries(st.sampled_from(["tensor", "fma"]), st.floats(0.0, 2.0)),
    st.dictionaries(
        st.sampled_from(["tensor", "fma", "dram"]),
        st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)).map(sorted),
    ),
)
def test_estimates_lie_in_the_bounds_of_units_that_are_not_measured(
    pipes: dict[str, float], bounds: dict[str, list[float]]
) -> None:
    unmeasured = {name: Bounds(*ends) for name, ends in bounds.items()}
    before = Saturation("estimate", False, Bounds(0.0, 1.0), unmeasured=unmeasured)
    found = with_estimates(before, pipes).estimates
    assert set(found) <= set(unmeasured)
    for name, ratio in found.items():
        assert unmeasured[name].lower <= ratio <= unmeasured[name].upper
        assert pipes[name] <= unmeasured[name].upper
