# SPDX-License-Identifier: Apache-2.0
"""FLOP rates and their bounds, DRAM traffic, intensity and distances to the roofs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.clocks import Clocks
from exporter.derive.flops import estimated_flops_bounds, measured_flops_bounds
from exporter.derive.roofline import (
    dram_bandwidth_now,
    dram_bounds_per_second,
    estimated_roofline,
    intensity,
    intensity_bounds,
    roofline,
)
from exporter.derive.saturation import estimated, measured
from exporter.model.reading import Activity, Device, Utilization
from exporter.model.snapshot import Bounds, Ceilings, Roofline
from tests.derive.readings import A100_CEILINGS, H100, H100_CEILINGS, clocks_at, counters, known

RATIO = st.floats(0.0, 1.0)
OPTIONAL = st.none() | RATIO


def observe(
    activity: Activity,
    ceilings: Ceilings | None,
    clocks: Clocks,
    device: Device = H100,
    tensor_cores: bool = True,
) -> Roofline:
    """The roofline of one reading on an H100."""
    saturation = measured(activity, device.compute_capability, tensor_cores=tensor_cores)
    return roofline(
        activity, activity, saturation, ceilings, clocks, device, tensor_cores=tensor_cores
    )


def test_intensity_of_no_traffic_is_unknown() -> None:
    """Traffic that is only the counter's rounding gives no intensity."""
    assert intensity(1e12, 0.0) is None
    assert intensity(1e12, 9e5) is None
    assert intensity(1e12, None) is None
    assert intensity(0.0, 1e9) == 0.0


def test_a_full_tensor_pipe_above_the_datasheet_clock_exceeds_the_spec_roof() -> None:
    """H100 SXM at 1980 MHz: 1.08 of the spec roof (1830 MHz), 1.00 at the clock, never cut."""
    activity = counters(engine=1.0, sm=1.0, tensor=1.0, dram=0.3)
    result = observe(activity, H100_CEILINGS, clocks_at(sm=1.98e9))
    assert result.roof_ratio["spec"] == pytest.approx(1.082, abs=5e-4)
    assert result.roof_ratio["clock"] == 1.0
    assert result.roof_ratio["achievable"] == pytest.approx(1.98 / 1.83 / 0.8)
    assert result.tensor_flops_utilization_ratio == pytest.approx(1.98 / 1.83)
    assert result.flops_per_second["bf16_tensor"] == pytest.approx(1070.5e12, rel=1e-3)


def test_dram_traffic_follows_the_memory_clock() -> None:
    """Half the memory clock moves half the bytes: 0.5 x 2619 MHz x 2 x 5120 / 8."""
    activity = counters(engine=1.0, sm=1.0, dram=1.0, tensor=0.2)
    full = observe(activity, H100_CEILINGS, clocks_at())
    assert full.dram_bytes_per_second == pytest.approx(2.619e9 * 2 * 640)
    half = observe(activity, H100_CEILINGS, clocks_at(memory=2.619e9 / 2))
    assert half.dram_bytes_per_second == pytest.approx(2.619e9 * 640)
    assert half.roof_ratio["spec"] == pytest.approx(0.5, abs=1e-3)
    assert half.roof_ratio["clock"] == 1.0
    assert full.intensity_flops_per_byte == pytest.approx(
        0.2 * 989.4e12 * 1.98 / 1.83 / (2.619e9 * 2 * 640)
    )


def test_bandwidth_falls_back_and_scales() -> None:
    """The spec's figure without a clock, the device's bus without the spec's, eighths under MIG."""
    clocks = clocks_at()
    slice_ceilings = replace(H100_CEILINGS, share_of_memory=0.125)
    no_bus = replace(H100_CEILINGS, memory_bus_width_bits=None)
    narrow = replace(H100, memory_bus_width_bits=2560)
    assert dram_bandwidth_now(H100_CEILINGS, clocks_at(memory=None), H100) == 3.35e12
    assert dram_bandwidth_now(no_bus, clocks, narrow) == pytest.approx(2.619e9 * 640)
    assert dram_bandwidth_now(slice_ceilings, clocks, H100) == pytest.approx(2.619e9 * 160)
    assert dram_bandwidth_now(None, clocks, H100) == pytest.approx(2.619e9 * 1280)
    assert dram_bandwidth_now(None, clocks, replace(H100, mig=True)) is None


def test_an_unread_tensor_pipe_hides_the_flop_totals() -> None:
    """Vector work alone is not taken for the total; bounds remain."""
    activity = counters(engine=0.8, sm=0.6, tensor=None, fp32=0.5, dram=0.2)
    result = observe(activity, H100_CEILINGS, clocks_at())
    assert result.flops_per_second == {}
    assert result.intensity_flops_per_byte is None
    assert result.roof_ratio == {}
    assert result.tensor_flops_utilization_ratio is None
    assert known(result.flops_bounds_per_second).lower == 0.0
    assert known(result.flops_bounds_per_second).upper == pytest.approx(
        0.6 * 1978.9e12 * 1.98 / 1.83 + 0.5 * 66.9e12
    )


def test_a_gpu_without_tensor_cores_counts_vector_work() -> None:
    """Nothing is missing there, and memory's achievable share is all that is needed."""
    ceilings = Ceilings(
        spec="p100",
        peak_flops_per_second={"fp64": 4.7e12, "fp32": 9.3e12, "fp16": 18.7e12},
        peak_clock_hertz={"vector": 1.98e9, "memory": 2.619e9},
        memory_bandwidth_bytes_per_second=7.32e11,
        achievable_ratio={"memory": 0.9},
    )
    activity = counters(engine=1.0, sm=1.0, tensor=None, fp32=0.5, dram=0.1)
    device = replace(H100, compute_capability=(6, 0), memory_bus_width_bits=None)
    result = observe(activity, ceilings, clocks_at(), device, tensor_cores=False)
    assert result.flops_per_second == {"fp64": 0.0, "fp32": pytest.approx(4.65e12), "fp16": 0.0}
    assert result.roof_ratio == {"clock": 0.5, "spec": 0.5, "achievable": 0.5}


@pytest.mark.parametrize(
    "achievable", [{}, {"memory": 0.9}, {"bf16_tensor": 0.8}, {"fp8_tensor": 0.7, "memory": 0.9}]
)
def test_the_achievable_roof_needs_both_fractions(achievable: dict[str, float]) -> None:
    """The assumed precision's and the memory's; anything less is not a roof."""
    ceilings = replace(H100_CEILINGS, achievable_ratio=achievable)
    result = observe(counters(tensor=0.5), ceilings, clocks_at())
    assert set(result.roof_ratio) == {"clock", "spec"}


def test_without_clock_or_ceilings_only_the_distance_at_the_clock_is_known() -> None:
    """No rate is invented for a GPU whose clock or peak is not known."""
    activity = counters(engine=1.0, sm=1.0, tensor=0.4, dram=0.2)
    for result in (
        observe(activity, H100_CEILINGS, clocks_at(sm=None)),
        observe(activity, None, clocks_at()),
    ):
        assert result.roof_ratio == {"clock": 0.4}
        assert result.flops_per_second == {}
        assert result.flops_bounds_per_second is None
        assert result.intensity_flops_per_byte is None


A100_CLOCKS = Clocks(sm=1.41e9, memory=1.593e9, tensor_reference=1.41e9, vector_reference=1.41e9)


@pytest.mark.parametrize(
    ("split", "lower", "upper"),
    [
        ({}, 19.5, 312.0),
        ({"imma": 0.0}, 19.5, 312.0),
        ({"imma": 0.25}, 0.75 * 19.5 + 0.25 * 624, 0.75 * 312 + 0.25 * 1248),
        ({"imma": 1.0}, 624.0, 1248.0),
        ({"dmma": 0.0}, 156.0, 312.0),
        ({"dmma": 0.25}, 0.25 * 19.5 + 0.75 * 156, 0.25 * 19.5 + 0.75 * 312),
        ({"dfma": 0.25}, 0.25 * 19.5 + 0.75 * 156, 0.25 * 19.5 + 0.75 * 312),
        ({"dmma": 0.0, "dfma": 1.0}, 19.5, 19.5),
        ({"dmma": 0.5, "imma": 0.6}, 0.5 * 19.5 + 0.5 * 624, 0.5 * 19.5 + 0.5 * 1248),
    ],
)
def test_the_bounds_know_what_the_source_splits(
    split: dict[str, float], lower: float, upper: float
) -> None:
    """A full tensor pipe of an A100: FP64 19.5, TF32 156, BF16 312, INT8 624, INT4 1248 TFLOP/s."""
    activity = counters(engine=1.0, sm=1.0, tensor=1.0, **split)
    bounds = known(
        measured_flops_bounds(
            activity,
            measured(activity, (8, 0)),
            A100_CEILINGS,
            A100_CLOCKS,
            (8, 0),
            tensor_cores=True,
        )
    )
    assert bounds.lower == pytest.approx(lower * 1e12)
    assert bounds.upper == pytest.approx(upper * 1e12)


@given(
    pipes=st.tuples(OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL),
    sm=OPTIONAL,
    imma=OPTIONAL,
    clock=st.floats(1e8, 3e9),
    precision=st.sampled_from(
        ["fp64_tensor", "tf32_tensor", "bf16_tensor", "fp8_tensor", "int8_tensor"]
    ),
    capability=st.sampled_from([None, (7, 0), (8, 0), (9, 0)]),
)
def test_assumed_work_lies_between_the_bounds(
    pipes: tuple[float | None, ...],
    sm: float | None,
    imma: float | None,
    clock: float,
    precision: str,
    capability: tuple[int, int] | None,
) -> None:
    """0 <= lower <= assumed <= upper for every precision and whatever is read."""
    tensor, fp64, fp32, fp16 = pipes
    activity = Activity(
        "gpm", 1.0, sm=sm, tensor=tensor, fp64=fp64, fp32=fp32, fp16=fp16, dram=0.5, imma=imma
    )
    result = roofline(
        activity,
        activity,
        measured(activity, capability),
        replace(H100_CEILINGS, assumed_precision=precision),
        clocks_at(sm=clock),
        replace(H100, compute_capability=capability),
        tensor_cores=True,
    )
    bounds = known(result.flops_bounds_per_second)
    assert 0.0 <= bounds.lower <= bounds.upper
    assert bool(result.flops_per_second) == (tensor is not None)
    if result.flops_per_second:
        total = sum(result.flops_per_second.values())
        assert bounds.lower <= total * (1 + 1e-12)
        assert total <= bounds.upper * (1 + 1e-12)


@given(
    pipes=st.tuples(RATIO, RATIO, RATIO, RATIO),
    hidden=st.sets(st.sampled_from(["tensor", "fp64", "fp32", "fp16"])),
    sm=RATIO,
    capability=st.sampled_from([None, (7, 0), (8, 0), (9, 0)]),
)
def test_hidden_pipes_only_widen_the_bounds(
    pipes: tuple[float, ...], hidden: set[str], sm: float, capability: tuple[int, int] | None
) -> None:
    """What is not read enters with its bound, so the true bounds stay inside."""
    tensor, fp64, fma, share = (ratio * sm for ratio in pipes)
    truth = Activity(
        "gpm",
        1.0,
        engine=sm,
        sm=sm,
        tensor=tensor,
        fp64=fp64,
        fp32=min(fma, share),
        fp16=fma - min(fma, share),
        dram=0.1,
    )
    absent: dict[str, Any] = dict.fromkeys(hidden)
    seen = replace(truth, **absent)
    narrow, wide = (
        measured_flops_bounds(
            activity,
            measured(activity, capability),
            H100_CEILINGS,
            clocks_at(),
            capability,
            tensor_cores=True,
        )
        for activity in (truth, seen)
    )
    assert narrow is not None
    assert wide is not None
    assert wide.lower <= narrow.lower
    assert narrow.upper <= wide.upper * (1 + 1e-12)


def test_an_estimate_bounds_the_work_by_the_busy_time() -> None:
    """U x (fastest tensor + FP64 + the FP32/FP16 units, counted once where they are shared)."""
    at_spec = replace(clocks_at(sm=345e6), sm_busy=1.83e9)
    shared = known(estimated_flops_bounds(0.5, H100_CEILINGS, at_spec, (9, 0), tensor_cores=True))
    assert shared.lower == 0.0
    assert shared.upper == pytest.approx(0.5 * (1978.9e12 + (33.5e12 + 133.8e12) * 1.83 / 1.98))
    clocks = Clocks(sm_busy=1.41e9, tensor_reference=1.41e9, vector_reference=1.41e9)
    separate = known(estimated_flops_bounds(1.5, A100_CEILINGS, clocks, (8, 0), tensor_cores=True))
    assert separate.upper == pytest.approx(312e12 + 9.7e12 + 19.5e12 + 78e12)
    without = known(estimated_flops_bounds(1.0, A100_CEILINGS, clocks, (6, 0), tensor_cores=False))
    assert without.upper == pytest.approx(9.7e12 + 19.5e12 + 78e12)


def test_an_estimate_needs_ceilings_and_a_clock() -> None:
    """Without them there is no bound of the work, rather than an infinite one; and none of the
    traffic without a bandwidth."""
    driver = Utilization(0.5, 0.52, 1.0)
    bounds = estimated(driver)
    assert estimated_roofline(driver, bounds, None, Clocks(), H100, tensor_cores=True) is None
    empty = replace(H100_CEILINGS, peak_flops_per_second={})
    nothing, alone = Clocks(), Clocks(sm=1e9)
    for ceilings, clocks in ((H100_CEILINGS, nothing), (H100_CEILINGS, alone), (empty, alone)):
        found = known(estimated_roofline(driver, bounds, ceilings, clocks, H100, tensor_cores=True))
        assert found.flops_bounds_per_second is None
        assert found.dram_bounds_bytes_per_second == Bounds(0.0, 3.35e12)
    bare = replace(empty, memory_bandwidth_bytes_per_second=None)
    assert estimated_roofline(driver, bounds, bare, Clocks(), H100, tensor_cores=True) is None


def test_traffic_that_is_not_read_is_bounded_at_the_clock_that_fits() -> None:
    """A memory clock that has fallen since, or is above that of the datasheet, hides nothing."""
    estimate = estimated(Utilization(0.5, 0.5, 1.0))
    saturation = replace(estimate, unmeasured={"dram": Bounds(0.1, 1.0)})
    bandwidth = 2.619e9 * 2 * 5120 / 8
    for clock, lower, upper in ((1.0, 1.0, 1.0), (0.2, 0.2, 1.0), (1.1, 1.0, 1.1)):
        bounds = known(
            dram_bounds_per_second(
                saturation, H100_CEILINGS, clocks_at(memory=clock * 2.619e9), H100
            )
        )
        assert bounds.lower == pytest.approx(0.1 * lower * bandwidth, rel=0.002)
        assert bounds.upper == pytest.approx(upper * bandwidth, rel=0.002)
    assert dram_bounds_per_second(estimated(Utilization(0, 0, 1)), None, Clocks(), H100) is None


@given(
    flops=st.tuples(st.floats(0, 1e15), st.floats(0, 1), st.floats(1, 9)),
    traffic=st.tuples(st.floats(2e6, 3e12), st.floats(0, 1), st.floats(1, 9)),
    is_read=st.booleans(),
)
def test_the_intensity_lies_within_its_bounds(
    flops: tuple[float, float, float], traffic: tuple[float, float, float], is_read: bool
) -> None:
    """F / B for work and traffic that are known within bounds; no upper end without one of B."""
    (work, less, more), (moved, few, many) = flops, traffic
    of_work = Bounds(work * less, work * more)
    read, of_traffic = (moved, None) if is_read else (None, Bounds(moved * few, moved * many))
    bounds = intensity_bounds(of_work, read, of_traffic)
    if of_traffic is not None and of_traffic.lower < 1e6:
        assert bounds is None
        return
    assert bounds is not None
    assert bounds.lower * (1 - 1e-9) <= work / moved <= bounds.upper * (1 + 1e-9)
    assert intensity_bounds(None, read, of_traffic) is None
    assert intensity_bounds(of_work, None, None) is None
