# SPDX-License-Identifier: Apache-2.0
"""The likely activity of units that nobody measures, held against published readings."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.saturation import estimated, measured
from exporter.derive.work import (
    Work,
    model_flops_utilization,
    pipe_estimates,
    with_estimates,
    with_faster,
)
from exporter.model.reading import Device, Utilization, Vitals
from exporter.model.snapshot import DRAM_ESTIMATE_ERROR_RATIO, Bounds, Saturation
from exporter.specs.gpu_class import memory_utilization_use
from exporter.specs.precisions import pipe_peak
from tests.derive.readings import A100, counters
from tests.derive.readings import A100_CEILINGS as CEILINGS
from tests.derive.test_work import VITALS

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
    assert pipe_estimates(work, CEILINGS, VITALS, A100) == {"tensor": pytest.approx(0.2)}
    both = replace(work, flops_per_second_by_peak={"bf16_tensor": 0.1 * peak, "fp32": 1e12})
    fma = 1e12 / (19.5e12 * 1.2 / 1.41)
    found = pipe_estimates(both, CEILINGS, VITALS, A100)
    assert found == {"tensor": pytest.approx(0.1), "fma": pytest.approx(fma)}


def test_mfu_is_against_the_datasheet_peak_of_the_stated_precision() -> None:
    done = {"bf16_tensor": 78e12, "fp32": 1.95e12}
    mfu = model_flops_utilization(Work(1e12, flops_per_second_by_peak=done), CEILINGS)
    assert mfu == pytest.approx(0.25 + 0.1)
    unknown = Work(1e12, flops_per_second_by_peak={"fp8_tensor": 1e12})
    assert model_flops_utilization(unknown, CEILINGS) is None
    assert model_flops_utilization(Work(1e12), CEILINGS) is None


@pytest.mark.parametrize(
    "work",
    [
        Work(1e12),
        Work(1e12, flops_per_second_by_peak={"fp8_tensor": 1e12}),  # which an A100 lacks
        with_faster(Work(1e12, 0.0, frozenset({"bf16_tensor"}), {"bf16_tensor": 1e12})),
    ],
)
def test_work_whose_pipe_or_clock_cannot_be_told_estimates_nothing(work: Work) -> None:
    assert pipe_estimates(work, CEILINGS, VITALS, A100) == {}
    told = Work(1e12, flops_per_second_by_peak={"bf16_tensor": 1e12})
    assert pipe_estimates(told, CEILINGS, Vitals(), A100) == {}


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
