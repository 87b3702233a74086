# SPDX-License-Identifier: Apache-2.0
"""Which metrics are sampled on each chip: the search, and its result with NVIDIA's library."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Activity
from exporter.sources.cupti.choice import MOST_TRIALS, Metric, largest_set
from exporter.sources.cupti.signals import SIGNALS, MetricForm
from tests.sources.cupti.real import RELEASES, chip_facts

CU12, CU13 = RELEASES
CORE = {"sm", "engine", "tensor", "fma", "occupancy"}
"""What every chip with tensor cores gives."""
CLASSES = {"hmma", "imma"}
PCIE = {"pcie_receive", "pcie_transmit"}
NVLINK = {"nvlink_receive", "nvlink_transmit"}
ALL = CORE | {"dram", "fp64", "int"}
TURING, GTX16 = ("TU102", "TU104", "TU106"), ("TU116", "TU117")
AMPERE = ("GA102", "GA103", "GA104", "GA106", "GA107")
ADA = ("AD102", "AD103", "AD104", "AD106", "AD107")
RTX50 = ("GB202", "GB203", "GB205", "GB206")
BOTH = {
    TURING: ALL | PCIE | NVLINK,
    GTX16: ALL - {"tensor"} | {"fp16"} | PCIE,
    ("GA100",): ALL | PCIE | NVLINK,
    ("GB100", "GB102"): ALL | CLASSES | {"dmma"} | PCIE | NVLINK,
}
"""By chips: what is sampled of them, by either release."""
EXPECTED = {
    CU12: {
        **BOTH,
        AMPERE: ALL - {"fp64"} | PCIE | NVLINK,
        ("GA10B", "GB10B"): ALL - {"dram", "fp64"},
        ADA: ALL - {"fp64"} | PCIE,
        ("GH100",): ALL | CLASSES | PCIE | NVLINK,
        RTX50: ALL - {"fp64", "int"} | CLASSES | PCIE,
        ("GB20B",): ALL - {"dram", "fp64", "int"} | CLASSES,
    },
    CU13: {
        **BOTH,
        AMPERE: ALL | PCIE | NVLINK,
        ("GA10B", "GB10B"): ALL - {"dram"},
        ADA: ALL | PCIE,
        ("GH100",): ALL | CLASSES | {"dmma"} | PCIE | NVLINK,
        ("GB110", "GB112"): ALL | CLASSES | PCIE | NVLINK,
        (*RTX50, "GB207"): ALL | CLASSES | PCIE,
        ("GB20B", "GB20C"): ALL - {"dram"} | CLASSES,
    },
}


# The search.


def metric(signal: int, number: int) -> Metric:
    return Metric(str(signal), f"{signal}.{number}", "sm", MetricForm.PERCENT)


def monotone(conflicts: Iterable[frozenset[Metric]]) -> Any:
    """A set of metrics fits if no conflict is a subset of it."""
    known = list(conflicts)
    return lambda metrics: not any(conflict <= set(metrics) for conflict in known)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[list[Metric]], list[frozenset[Metric]]]:
    sizes = draw(st.lists(st.integers(0, 3), max_size=5))
    candidates = [[metric(i, j) for j in range(size)] for i, size in enumerate(sizes)]
    every = [each for metrics in candidates for each in metrics]
    if not every:
        return candidates, []
    conflict = st.frozensets(st.sampled_from(every), min_size=1, max_size=3)
    return candidates, draw(st.lists(conflict, max_size=12))


@given(problems())
def test_the_most_important_signals_are_kept(
    problem: tuple[list[list[Metric]], list[frozenset[Metric]]],
) -> None:
    """As trying every set finds: a signal is kept if it fits beside those before it."""
    candidates, conflicts = problem
    fits = monotone(conflicts)

    def possible(signals: Sequence[list[Metric]]) -> list[tuple[Metric, ...]]:
        return [each for each in itertools.product(*signals) if fits(each)]

    kept: list[list[Metric]] = []
    for metrics in candidates:
        if possible([*kept, metrics]):
            kept.append(metrics)

    assert largest_set(candidates, fits) == possible(kept)[0]


def test_another_metric_is_tried_before_a_signal_gives_way() -> None:
    """If the better metric of a signal leaves no room for the next signal, another one is taken."""
    one, other, second, third = metric(0, 0), metric(0, 1), metric(1, 0), metric(2, 0)
    conflicts = [{one, second}, {one, third}, {other, third}, {second, third}]
    fits = monotone(map(frozenset, conflicts))

    assert largest_set([[one, other], [second], [third]], fits) == (other, second)


def test_the_search_ends() -> None:
    """The number of trials is limited where no combination fits."""
    tried = 0

    def fits(metrics: tuple[Metric, ...]) -> bool:
        nonlocal tried
        tried += 1
        return len(metrics) <= 12

    signals = [[metric(i, j) for j in range(5)] for i in range(13)]

    assert len(largest_set(signals, fits)) == 12
    assert tried <= len(signals) * MOST_TRIALS


# The table.


def test_every_signal_is_a_field_in_its_unit() -> None:
    """Ratios in percent, traffic in bytes."""
    units = {field.name: field.name.endswith("_bytes") for field in fields(Activity)}
    for signal in SIGNALS:
        named = {each.field or signal.name for each in signal.alternatives}
        assert named <= set(units)
        assert all(units[name] == (signal.form is MetricForm.BYTES) for name in named)
    assert len({signal.name for signal in SIGNALS}) == len(SIGNALS)


def test_memory_tensor_and_sm_never_go_first() -> None:
    """Later signals are dropped first: links and the split of tensor work before all others."""
    order = [signal.name for signal in SIGNALS]

    assert set(order[:4]) == {"sm", "engine", "dram", "tensor"}
    assert set(order[-7:]) == {"hmma", "imma", "dmma"} | PCIE | NVLINK


# With NVIDIA's library.


@pytest.mark.parametrize("package", RELEASES)
def test_every_chip_from_turing_on_is_sampled_in_one_pass(
    package: str, record_property: Callable[[str, object], None]
) -> None:
    """Each chip gives every signal that it has, in one pass; the config image is small."""
    chips = chip_facts(package)["chips"]

    assert {chip: set(found["fields"]) for chip, found in chips.items()} == {
        chip: signals for group, signals in EXPECTED[package].items() for chip in group
    }
    assert {found["passes"] for found in chips.values()} == {1}
    assert all(1000 < found["image_bytes"] < 20_000 for found in chips.values())
    assert all(found["again"] for found in chips.values())
    slowest = max(found["seconds"] for found in chips.values())
    record_property("measured", f"metrics of a chip, {package}: at most {slowest:.2f} s")


@pytest.mark.parametrize(("package", "before_turing", "unknown"), [(CU12, 27, 1), (CU13, 46, 46)])
def test_what_cupti_refuses(package: str, before_turing: int, unknown: int) -> None:
    """Chips before Turing, unknown chips, and a metric that the chip lacks beside one that it has.
    A metric that is made of many counters takes many passes."""
    facts = chip_facts(package)

    assert facts["refused"] == {"GV100": before_turing, "XX999": unknown, "metric": 1}
    assert facts["passes"]["one"] == 1
    assert facts["passes"]["many"] > 5


@pytest.mark.parametrize("package", RELEASES)
def test_what_is_missing_is_what_is_wanted_or_there(package: str) -> None:
    """No NVLink is missed on a chip without any."""
    missing = {chip: set(found["missing"]) for chip, found in chip_facts(package)["chips"].items()}

    assert missing["TU102"] == missing["GA100"] == set()
    assert missing["TU116"] == {"tensor"}
    assert missing["GA102"] == missing["AD102"] == ({"fp64"} if package == CU12 else set())
    assert missing["GH100"] == ({"dmma"} if package == CU12 else set())
    assert "dram" in missing["GA10B"]


@pytest.mark.parametrize("package", RELEASES)
def test_a_pipe_is_called_what_the_chip_has(package: str) -> None:
    """CUPTI's description decides, not the name: a pipe may be FP16 with tensor cores, or alone."""
    found = chip_facts(package)
    named = {chip: set(found["chips"][chip]["fields"].values()) for chip in found["chips"]}

    assert {"tensor_fp16", "fp32"} <= named["TU102"]
    assert {"fp16", "fp32"} <= named["TU116"]
    assert not {"tensor", "fma", "fp16"} & named["TU102"]
    for chip in ("GA100", "GA102", "AD102", "GH100", "GB100", "GB202"):
        assert {"tensor", "fma"} <= named[chip]
        assert not {"tensor_fp16", "fp16", "fp32"} & named[chip]
