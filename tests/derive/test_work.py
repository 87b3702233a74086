# SPDX-License-Identifier: Apache-2.0
"""What the FLOPs that jobs state say of a GPU without counters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.saturation import estimated
from exporter.derive.work import Rates, Work, busier, rates_of_work, worked
from exporter.model.reading import Device, Utilization, Vitals
from exporter.model.snapshot import Bounds, Roofline
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
