# SPDX-License-Identifier: Apache-2.0
"""Saturation measured, bounded and estimated, and the partition of time that follows from it."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from exporter.derive.saturation import DRAM_MARGIN_RATIO, estimated, measured
from exporter.derive.timeparts import time_parts
from exporter.derive.units import has_tensor_cores
from exporter.model.reading import Activity, Device, Utilization
from exporter.model.snapshot import DRAM_ESTIMATE_ERROR_RATIO
from exporter.specs.gpu_class import memory_utilization_use
from tests.derive.readings import H100_CEILINGS, counters, known

READ = ("engine", "sm", "tensor", "fp64", "fp32", "fp16", "dram", "integer")
CAPABILITIES = st.sampled_from([None, (6, 0), (7, 0), (8, 0), (8, 6), (9, 0), (12, 0)])
RATIO = st.floats(0.0, 1.0)
NOISY = st.none() | st.floats(-0.1, 1.3)


@pytest.mark.parametrize(
    ("values", "unit", "ratio"),
    [
        ({"tensor": 0.7, "dram": 0.4}, "tensor", 0.7),
        ({"tensor": 0.3, "dram": 0.8}, "dram", 0.8),
        ({"fp64": 0.6, "dram": 0.5}, "fp64", 0.6),
        ({"fp32": 0.6, "fp16": 0.2}, "fma", 0.6),
        ({"fp16": 0.6, "fp32": 0.2}, "fma", 0.6),
        ({"integer": 0.9, "tensor": 0.2}, "int", 0.9),
        ({"tensor": 0.5, "dram": 0.5}, "dram", 0.5),
        ({"tensor": 1.2, "fp64": 1.1}, "tensor", 1.0),
        ({}, None, 0.0),
    ],
)
def test_the_busiest_unit_gives_the_saturation(
    values: dict[str, float], unit: str | None, ratio: float
) -> None:
    """The largest activity, cut to 1, by name; ties go to DRAM first."""
    saturation = measured(counters(engine=1.0, sm=1.0, **values), (8, 0))
    assert saturation.complete
    assert (saturation.unit, saturation.ratio) == (unit, ratio)


def test_fma_is_an_interval_where_fp32_and_fp16_share_units() -> None:
    """Separate pipes below 8.6 are exact; shared ones lie between the larger and the sum."""
    activity = counters(engine=1.0, sm=1.0, fp32=0.6, fp16=0.3)
    separate = measured(activity, (8, 0)).bounds
    assert (separate.lower, separate.upper) == (0.6, 0.6)
    for capability in ((8, 6), (9, 0), None):
        shared = measured(activity, capability).bounds
        assert (shared.lower, shared.upper) == pytest.approx((0.6, 0.9))
    assert measured(replace(activity, fp16=0.6), (9, 0)).bounds.upper == 1.0


@pytest.mark.parametrize(
    ("engine", "sm", "utilization", "cap"),
    [
        (0.8, 0.6, 0.9, 0.6),
        (0.8, None, 0.9, 0.8),
        (None, None, 0.9, 0.9),
        (None, None, None, 1.0),
    ],
)
def test_an_unread_pipe_is_bounded_by_what_contains_it(
    engine: float | None, sm: float | None, utilization: float | None, cap: float
) -> None:
    """SM activity, else engine activity, else the utilization, else 1."""
    driver = None if utilization is None else Utilization(utilization, utilization, 1.0)
    saturation = measured(
        counters(engine=engine, sm=sm, tensor=None, fp64=0.1), (9, 0), utilization=driver
    )
    tensor = saturation.unmeasured["tensor"]
    assert (tensor.lower, tensor.upper) == (0.0, cap)
    assert (saturation.bounds.lower, saturation.bounds.upper) == (0.1, cap)


@pytest.mark.parametrize(
    ("upper", "memory", "cap"),
    [(0.5, 0.2, 0.5), (0.2, 0.5, 0.65), (0.2, 0.95, 1.0), (0.2, None, 1.0)],
)
def test_unread_dram_is_bounded_with_a_margin(
    upper: float, memory: float | None, cap: float
) -> None:
    """max(U, m + 0.15) cut to 1; nothing is known without m, as copy engines need no kernel."""
    driver = Utilization(upper, upper, 1.0, memory_upper_ratio=memory)
    for saturation in (
        estimated(driver),
        measured(counters(dram=None), (9, 0), utilization=driver),
    ):
        assert saturation.unmeasured["dram"].upper == pytest.approx(cap)


def test_gpus_without_tensor_cores_have_no_tensor_resource() -> None:
    """No tensor pipe by generation or by spec row: nothing is missing and nothing is bounded."""
    without = replace(H100_CEILINGS, peak_flops_per_second={"fp32": 1e13})
    assert not has_tensor_cores(H100_CEILINGS, (6, 1))
    assert not has_tensor_cores(without, (7, 5))
    assert has_tensor_cores(H100_CEILINGS, (9, 0))
    assert has_tensor_cores(None, (7, 0))
    assert has_tensor_cores(None, None)
    activity = counters(engine=0.5, sm=0.5, tensor=None)
    assert measured(activity, (7, 5), tensor_cores=False).complete
    assert "tensor" not in estimated(Utilization(0.5, 0.5, 1.0), tensor_cores=False).unmeasured


@given(
    values=st.fixed_dictionaries(dict.fromkeys(READ, NOISY)),
    upper=st.none() | st.floats(0.0, 1.2),
    memory=st.none() | st.floats(0.0, 1.2),
    capability=CAPABILITIES,
    tensor_cores=st.booleans(),
)
def test_bounds_are_ordered_whatever_is_read(
    values: dict[str, float | None],
    upper: float | None,
    memory: float | None,
    capability: tuple[int, int] | None,
    tensor_cores: bool,
) -> None:
    """0 <= lower <= upper <= 1 for all inputs, also for readings that contradict each other."""
    driver = None if upper is None else Utilization(upper, upper, 1.0, memory, memory)
    activity = Activity(source="gpm", seconds=1.0, **values)
    results = [measured(activity, capability, tensor_cores=tensor_cores, utilization=driver)]
    if driver is not None:
        results.append(estimated(driver, tensor_cores=tensor_cores))
    for saturation in results:
        for bounds in (saturation.bounds, *saturation.unmeasured.values()):
            assert 0.0 <= bounds.lower <= bounds.upper <= 1.0
        assert saturation.complete == (saturation.ratio is not None)
        assert not (saturation.complete and saturation.unmeasured)


@given(
    engine=st.floats(-0.1, 1.2),
    sm=st.floats(-0.1, 1.2),
    tensor=st.floats(-0.1, 1.2),
    dram=st.floats(-0.1, 1.2),
    clock=RATIO,
)
def test_time_parts_are_a_partition(
    engine: float, sm: float, tensor: float, dram: float, clock: float
) -> None:
    """Five parts, each in [0, 1], adding up to 1, also for readings above 1."""
    activity = Activity("gpm", 1.0, engine, sm, None, dram, tensor, 0.0, 0.0, 0.0)
    parts = known(time_parts(activity, measured(activity, (9, 0)), clock))
    values = (parts.idle, parts.narrow, parts.unsaturated, parts.clock, parts.saturated)
    assert all(0.0 <= value <= 1.0 for value in values)
    assert sum(values) == pytest.approx(1.0, abs=1e-9)


def test_time_parts_known_answer() -> None:
    """GR 0.9, SM 0.7, s 0.4 at half the clock."""
    activity = counters(engine=0.9, sm=0.7, tensor=0.4)
    parts = known(time_parts(activity, measured(activity, (9, 0)), 0.5))
    assert (parts.idle, parts.narrow, parts.unsaturated) == pytest.approx((0.1, 0.2, 0.3))
    assert (parts.clock, parts.saturated) == pytest.approx((0.2, 0.2))


def test_no_partition_without_complete_counters_or_clock() -> None:
    """An unknown clock only matters while some unit is active."""
    activity = counters(engine=0.5, sm=0.5, tensor=None)
    assert time_parts(activity, measured(activity, (9, 0)), 1.0) is None
    busy = counters(engine=0.5, sm=0.5, tensor=0.2)
    assert time_parts(busy, measured(busy, (9, 0)), None) is None
    quiet = counters()
    parts = known(time_parts(quiet, measured(quiet, (9, 0)), None))
    assert parts.idle == 1.0


@pytest.mark.parametrize(
    ("values", "unit", "ratio"),
    [
        ({"fma": 0.6, "tensor": 0.2}, "fma", 0.6),
        ({"fma": 0.1, "tensor": 0.2}, "tensor", 0.2),
        ({"fma": 0.1, "tensor": None, "tensor_fp16": 0.3}, "tensor", 0.3),
        ({"fma": 0.4, "tensor": None, "tensor_fp16": 0.3}, "fma", 0.4),
        ({"fp32": 0.4, "tensor": None, "tensor_fp16": 0.5}, "tensor", 0.5),
    ],
)
@pytest.mark.parametrize("capability", [None, (7, 5), (8, 9)])
def test_pipes_that_are_read_together_are_read(
    values: dict[str, float | None], unit: str, ratio: float, capability: tuple[int, int] | None
) -> None:
    """FP32 and FP16 units as one, and FP16 as part of the tensor pipe: nothing is missing."""
    saturation = measured(
        counters(**{"engine": 0.9, "sm": 0.8, "fp32": None, "fp16": None, **values}), capability
    )
    assert saturation.complete
    assert (saturation.unit, saturation.ratio) == (unit, ratio)
    if "fma" in values:
        assert saturation.bounds.upper == ratio


def test_a_tensor_pipe_that_includes_fp16_says_nothing_of_fp32() -> None:
    """Only FP16 is within it: FP32 stays to be bounded."""
    activity = counters(engine=0.9, sm=0.8, tensor=None, fp32=None, fp16=None, tensor_fp16=0.3)
    saturation = measured(activity, (7, 5))
    assert not saturation.complete
    assert set(saturation.unmeasured) == {"fma", "int"}
    assert saturation.unmeasured["fma"].upper == 0.8


V100 = Path(__file__).parent.parent / "data" / "memory_utilization_v100.csv"
"""NVML's memory utilization and the DRAM activity of hardware counters at the same moment; by
nsfcac/gpupowermodel."""


def readings() -> list[tuple[float, float]]:
    with V100.open(encoding="utf-8") as file:
        return [(float(row["mem_util"]), float(row["dram"])) for row in csv.DictReader(file)]


def of_memory(ratio: float | None, utilization: float = 1.0) -> Utilization:
    return Utilization(utilization, utilization, 1.0, ratio, ratio)


def test_dram_activity_follows_the_memory_utilization_of_published_readings() -> None:
    """Mean error 0.04, nine of ten within 0.12; and never above the bound."""
    errors = []
    for memory, dram in readings():
        found = estimated(of_memory(memory), memory_use="bound")
        errors.append(abs(found.estimates["dram"] - dram))
        assert dram <= found.unmeasured["dram"].upper <= memory + 0.15 + 1e-9
    assert len(errors) == 62
    assert fmean(errors) <= 0.04
    within = sum(error <= DRAM_ESTIMATE_ERROR_RATIO for error in errors)
    assert within >= 0.9 * len(errors)


@pytest.mark.parametrize(("memory_use", "upper"), [("bound", 0.45), ("estimate", 0.9), (None, 1.0)])
def test_the_bound_is_as_narrow_as_was_checked(memory_use: str | None, upper: float) -> None:
    found = estimated(of_memory(0.3, 0.9), memory_use=memory_use)  # type: ignore[arg-type]
    assert found.unmeasured["dram"].upper == pytest.approx(upper)
    assert ("dram" in found.estimates) == (memory_use is not None)
    assert estimated(of_memory(None)).estimates == {}


def test_counters_without_dram_keep_its_estimate_and_those_with_it_have_none() -> None:
    partly = measured(counters(dram=None), (7, 0), utilization=of_memory(0.5))
    assert partly.estimates == {"dram": pytest.approx(0.385)}
    assert measured(counters(dram=None), (7, 0)).estimates == {}
    assert measured(counters(fp64=None), (7, 0), utilization=of_memory(0.5)).estimates == {}


@pytest.mark.parametrize(
    ("name", "capability", "use"),
    [
        ("Tesla V100-SXM2-16GB", (7, 0), "bound"),
        ("Tesla T4", (7, 5), "bound"),
        ("NVIDIA A100-SXM4-80GB", (8, 0), "bound"),
        ("NVIDIA B300 SXM6 AC", (10, 3), "bound"),
        ("Tesla P100-PCIE-16GB", (6, 0), "estimate"),
        ("NVIDIA GeForce RTX 4090", (8, 9), "estimate"),
        ("NVIDIA RTX A6000", (8, 6), "estimate"),
        ("NVIDIA GB10", (12, 1), None),
        ("Orin (nvgpu)", (8, 7), None),
        ("Somebody's board", None, "estimate"),
    ],
)
def test_which_boards_were_checked(
    name: str, capability: tuple[int, int] | None, use: str | None
) -> None:
    """V100, T4 and B300 bracket the data-centre boards since Volta."""
    device = Device(index=0, uuid="GPU-a", name=name, compute_capability=capability)
    assert memory_utilization_use(device) == use


HIDEABLE = ("engine", "sm", "tensor", "fp64", "fp32", "fp16", "dram")


@st.composite
def consistent(draw: st.DrawFn) -> tuple[Activity, Utilization]:
    """What one interval of real hardware can show: pipe <= SM <= engine <= utilization."""
    utilization = draw(RATIO)
    engine = draw(RATIO) * utilization
    sm = draw(RATIO) * engine
    memory = draw(RATIO)
    return (
        Activity(
            source="gpm",
            seconds=1.0,
            engine=engine,
            sm=sm,
            tensor=draw(RATIO) * sm,
            fp64=draw(RATIO) * sm,
            fp32=draw(RATIO) * sm,
            fp16=draw(RATIO) * sm,
            integer=draw(RATIO) * sm,
            dram=draw(RATIO) * min(1.0, max(utilization, memory + DRAM_MARGIN_RATIO)),
        ),
        Utilization(
            ratio=utilization,
            upper_ratio=utilization,
            seconds=1.0,
            memory_ratio=memory,
            memory_upper_ratio=memory,
        ),
    )


@given(
    peak_flops=st.floats(1e12, 1e16),
    peak_bytes=st.floats(1e11, 1e13),
    compute=st.floats(1e-3, 1.0),
    memory=st.floats(1e-3, 1.0),
)
def test_saturation_is_the_distance_to_the_roof(
    peak_flops: float, peak_bytes: float, compute: float, memory: float
) -> None:
    """F / min(F_peak, I x B_peak) = max(F / F_peak, B / B_peak), which is what is measured."""
    flops, transferred = compute * peak_flops, memory * peak_bytes
    roof = min(peak_flops, flops / transferred * peak_bytes)
    activity = Activity("gpm", 1.0, 1.0, 1.0, None, memory, compute, 0.0, 0.0, 0.0)
    assert measured(activity, (9, 0)).ratio == pytest.approx(flops / roof)


@given(
    case=consistent(),
    hidden=st.sets(st.sampled_from((*HIDEABLE, "integer")), min_size=1),
    capability=CAPABILITIES,
    overlap=RATIO,
    with_utilization=st.booleans(),
)
def test_the_truth_lies_inside_the_bounds(
    case: tuple[Activity, Utilization],
    hidden: set[str],
    capability: tuple[int, int] | None,
    overlap: float,
    with_utilization: bool,
) -> None:
    """Hiding counters of a complete reading never puts the true value outside the bounds."""
    assume(hidden != {"integer"})
    truth, driver = case
    values = {name: getattr(truth, name) for name in (*HIDEABLE, "integer")}
    fma = max(values["fp32"], values["fp16"])
    if capability is None or capability >= (8, 6):
        fma += overlap * (min(values["sm"], values["fp32"] + values["fp16"]) - fma)
    true = {**values, "fma": fma, "int": values["integer"]}
    absent: dict[str, Any] = dict.fromkeys(hidden)
    seen = measured(
        replace(truth, **absent),
        capability,
        utilization=driver if with_utilization else None,
    )
    saturation = max(true[name] for name in ("tensor", "fma", "fp64", "int", "dram"))
    assert seen.bounds.lower <= saturation <= seen.bounds.upper + 1e-12
    for resource, bounds in seen.unmeasured.items():
        assert bounds.lower <= true[resource] <= bounds.upper + 1e-12
