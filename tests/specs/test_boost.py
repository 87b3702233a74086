# SPDX-License-Identifier: Apache-2.0
"""How well the clock of a datasheet's peak follows from NVML's maximum."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Device
from exporter.specs import load_specs
from exporter.specs.boost import (
    AT_THE_BOOST_CLOCK,
    ON_THE_CURVE,
    UNITS,
    Unit,
    boost_factor,
    on_the_curve,
)
from exporter.specs.gpu_class import GpuClass, gpu_class

PAGE = Path(__file__).parent.parent.parent / "docs" / "roofline.md"
SIGHTINGS = Path(__file__).parent.parent / "data" / "maximum_sm_clocks"
BOOK = load_specs()

Group = tuple[tuple[int, int], GpuClass]


@dataclass(frozen=True, slots=True)
class Sighting:
    """A GPU model with a published maximum SM clock by NVML; clocks in MHz."""

    capability: tuple[int, int]
    gpu_class: GpuClass
    max_mhz: float
    clock_mhz: Mapping[Unit, float]
    """The clock of the datasheet's peaks: the boost clock, or the one that the peak implies."""
    name: str


def _sighting(line: str) -> Sighting:
    """Parse a line of the table."""
    capability, kind, max_mhz, vector, tensor, _, name = line.split(maxsplit=6)
    major, minor = capability.split(".")
    clocks: dict[Unit, float] = {"vector": float(vector)}
    if tensor != "-":
        clocks["tensor"] = float(vector if tensor == "=" else tensor)
    return Sighting(
        capability=(int(major), int(minor)),
        gpu_class=cast("GpuClass", kind),
        max_mhz=float(max_mhz),
        clock_mhz=clocks,
        name=name,
    )


def _sightings(name: str) -> tuple[Sighting, ...]:
    lines = (SIGHTINGS / name).read_text(encoding="utf-8").splitlines()
    return tuple(_sighting(line) for line in lines if not line.startswith("#"))


BOOSTED = _sightings("boost_clock.txt")
"""Boards whose maximum is the boost clock."""
CURVES = _sightings("voltage_curve.txt")
SEEN = (*BOOSTED, *CURVES)
CURVE_END_MHZ = {
    capability: median(each.max_mhz for each in CURVES if each.capability == capability)
    for capability in {each.capability for each in CURVES}
}

WORDS: Mapping[GpuClass, str] = {
    "geforce": "GeForce",
    "workstation": "workstation",
    "compact_workstation": "compact workstation",
    "laptop": "laptop",
    "low_power": "small form factor, Max-Q",
}


@dataclass(frozen=True)
class Row:
    """A listed GPU model on the voltage curve."""

    key: str
    group: Group
    """By the product: some laptop GPUs of Turing have the names of desktop ones."""
    by_name: Group
    """What the exporter takes it for if it is not listed."""
    ratio: float
    """Boost clock / end of the curve."""


def _listed() -> list[Row]:
    rows = []
    for model in BOOK.models.values():
        capability = model.compute_capability
        end = CURVE_END_MHZ.get(capability)
        clock = model.peak_clock_hertz.get("vector")
        by_name = gpu_class(Device(0, "GPU-1", model.names[0], compute_capability=capability))
        if by_name is None or not end or not clock or not on_the_curve(capability, by_name):
            continue
        desktop = by_name not in ("laptop", "low_power")
        kind: GpuClass = "laptop" if desktop and "laptop" in model.product.lower() else by_name
        rows.append(Row(model.key, (capability, kind), (capability, by_name), clock / 1e6 / end))
    return rows


LISTED = _listed()


def _mean(rows: Iterable[Row], group: Group) -> float:
    """Return the factor of a group, or of its class where it has no rows, as boost_factor does."""
    groups: dict[Group, list[float]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row.ratio)
    if group in groups:
        return geometric_mean(groups[group])
    means = [geometric_mean(ratios) for each, ratios in groups.items() if each[1] == group[1]]
    return geometric_mean(means)


def _curve_errors(kind: GpuClass) -> dict[str, float]:
    """Return by key how far off the factor is that all other listed GPU models give."""
    return {
        row.key: _mean([each for each in LISTED if each is not row], row.by_name) / row.ratio - 1
        for row in LISTED
        if row.by_name[1] == kind
    }


def _boost(capability: tuple[int, int], unit: Unit, boards: Iterable[Sighting]) -> float:
    """Return the mean over the boards of this architecture, else over all of them."""
    known = [each for each in boards if unit in each.clock_mhz]
    group = [each for each in known if each.capability == capability] or known
    return geometric_mean(each.clock_mhz[unit] / each.max_mhz for each in group)


def _seen_errors() -> dict[str, float]:
    """Return by name how far off the factor of all other boards is, by unit the larger one."""
    errors: dict[str, float] = {}
    for left_out in BOOSTED:
        others = [each for each in BOOSTED if each is not left_out]
        for unit, clock in left_out.clock_mhz.items():
            error = _boost(left_out.capability, unit, others) * left_out.max_mhz / clock - 1
            errors[left_out.name] = max(errors.get(left_out.name, 0.0), error, key=abs)
    return errors


def test_each_sighting_is_plausible_and_in_the_right_table() -> None:
    """A wrong class or table would spoil the factors of others; no factor exceeds 1."""
    for seen in SEEN:
        device = Device(0, "GPU-1", seen.name, compute_capability=seen.capability)
        assert gpu_class(device) == seen.gpu_class, seen.name
        assert on_the_curve(seen.capability, seen.gpu_class) == (seen in CURVES), seen.name
        assert 0 < seen.clock_mhz["vector"] <= seen.max_mhz
        assert seen.clock_mhz.get("tensor", 1) <= seen.clock_mhz["vector"]
    assert len({seen.name for seen in SEEN}) == len(SEEN)


def test_the_factors_are_those_of_the_listed_gpu_models() -> None:
    """specs/boost.py has the means over the rows of gpus.yaml."""
    groups = {row.group for row in LISTED}
    assert set(ON_THE_CURVE) == groups
    assert {group: _mean(LISTED, group) for group in groups} == pytest.approx(
        ON_THE_CURVE, abs=0.002
    )


def test_the_factors_at_the_boost_clock_are_those_of_the_boards() -> None:
    """Of an architecture that was not seen, and where no tensor clock was, the mean of all."""
    capabilities = {(0, 0), *(each.capability for each in BOOSTED)}
    found = {(each, unit): _boost(each, unit, BOOSTED) for each in capabilities for unit in UNITS}
    others = {each: AT_THE_BOOST_CLOCK[(0, 0), each[1]] for each in found}
    assert found == pytest.approx(others | AT_THE_BOOST_CLOCK, abs=1e-4)


@pytest.mark.parametrize("kind", WORDS)
def test_the_error_of_a_gpu_that_is_not_listed(kind: GpuClass) -> None:
    """Each row is estimated from all others: the goal is 8 %, for the mean of its class."""
    errors = [abs(error) for error in _curve_errors(kind).values()]
    assert len(errors) >= 15
    goal = 0.1 if kind in ("compact_workstation", "low_power") else 0.08
    assert fmean(errors) <= goal


def test_the_error_where_the_maximum_is_the_boost_clock() -> None:
    """On data-centre boards, for tensor work on Hopper and Blackwell too."""
    errors = [abs(error) for error in _seen_errors().values()]
    assert len(errors) >= 20
    assert fmean(errors) <= 0.02
    assert max(errors) <= 0.08


def test_the_page_publishes_these_errors() -> None:
    """docs/roofline.md has the number of GPU models and the mean and largest error by class."""
    text = re.sub(r" +", " ", PAGE.read_text(encoding="utf-8"))
    published = {"data centre": _seen_errors()}
    published |= {words: _curve_errors(kind) for kind, words in WORDS.items()}
    for words, found in published.items():
        errors = [abs(error) for error in found.values()]
        row = f"| {words} | {len(errors)} | {fmean(errors):.1%} | {max(errors):.1%} |"
        assert row.replace("%", " %") in text, row


def test_sightings_have_the_clocks_of_their_rows() -> None:
    """Where a GPU model is listed, its row says the same boost clock."""
    compared = 0
    for seen in SEEN:
        model = BOOK.find(Device(0, "GPU-1", seen.name))
        if model is None:
            continue
        for unit, mhz in seen.clock_mhz.items():
            listed = model.peak_clock_hertz.get(unit)
            if listed is not None:
                assert mhz == pytest.approx(listed / 1e6, rel=0.015), seen.name
                compared += 1
    assert compared > 30


@given(
    major=st.integers(5, 13),
    minor=st.integers(0, 9),
    kind=st.sampled_from(get_args(GpuClass)),
    unit=st.sampled_from(UNITS),
)
def test_every_class_of_every_architecture_has_a_factor(
    major: int, minor: int, kind: GpuClass, unit: Unit
) -> None:
    """Architectures that were never seen take the mean of their class."""
    assert 0.4 < boost_factor((major, minor), kind, unit) <= 1
