# SPDX-License-Identifier: Apache-2.0
"""How well the clock of a datasheet's peak follows from NVML's maximum."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Device
from exporter.specs import load_specs
from exporter.specs.boost import (
    CURVE_END_MHZ,
    FACTORS,
    SIGHTINGS,
    boost_factor,
    on_the_curve,
    seen_errors,
)
from exporter.specs.gpu_class import GpuClass, gpu_class

PAGE = Path(__file__).parent.parent.parent / "docs" / "roofline.md"
BOOK = load_specs()

Group = tuple[tuple[int, int], GpuClass]

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


def test_the_factors_are_those_of_the_listed_gpu_models() -> None:
    """specs/boost.py has the means over the rows of gpus.yaml."""
    groups = {row.group for row in LISTED}
    assert set(FACTORS) == groups
    assert {group: _mean(LISTED, group) for group in groups} == pytest.approx(FACTORS, abs=0.002)


@pytest.mark.parametrize("kind", WORDS)
def test_the_error_of_a_gpu_that_is_not_listed(kind: GpuClass) -> None:
    """Each row is estimated from all others: the goal is 8 %, for the mean of its class."""
    errors = [abs(error) for error in _curve_errors(kind).values()]
    assert len(errors) >= 15
    goal = 0.1 if kind in ("compact_workstation", "low_power") else 0.08
    assert fmean(errors) <= goal


def test_the_error_where_the_maximum_is_the_boost_clock() -> None:
    """On data-centre boards, for tensor work on Hopper and Blackwell too."""
    errors = [abs(error) for error in seen_errors().values()]
    assert len(errors) >= 20
    assert fmean(errors) <= 0.02
    assert max(errors) <= 0.08


def test_the_page_publishes_these_errors() -> None:
    """docs/roofline.md has the number of GPU models and the mean and largest error by class."""
    text = re.sub(r" +", " ", PAGE.read_text(encoding="utf-8"))
    published = {"data centre": seen_errors()}
    published |= {words: _curve_errors(kind) for kind, words in WORDS.items()}
    for words, found in published.items():
        errors = [abs(error) for error in found.values()]
        row = f"| {words} | {len(errors)} | {fmean(errors):.1%} | {max(errors):.1%} |"
        assert row.replace("%", " %") in text, row


def test_without_the_factor_a_geforce_would_be_a_fifth_too_high() -> None:
    """What the maximum clock alone would give: by 18 % and more, for small boards by 75 % or so."""
    assert 3105 / 2520 - 1 > 0.18
    ratios = {row.key: row.ratio for row in LISTED}
    assert 1 / ratios["rtx-4090"] - 1 == pytest.approx(3105 / 2520 - 1)
    assert max(1 / ratio - 1 for ratio in ratios.values()) > 0.75


def test_a_maximum_is_never_below_the_boost_clock() -> None:
    """So that a factor never exceeds 1."""
    for sighting in SIGHTINGS:
        assert 0 < sighting.clock_mhz["vector"] <= sighting.max_mhz
        assert sighting.clock_mhz.get("tensor", 1) <= sighting.clock_mhz["vector"]
    assert all(0.4 < factor < 1 for factor in FACTORS.values())


def test_sightings_are_of_the_class_that_their_name_says() -> None:
    """A row in the wrong class would spoil two factors."""
    for sighting in SIGHTINGS:
        device = Device(0, "GPU-1", sighting.name, compute_capability=sighting.capability)
        assert gpu_class(device) == sighting.gpu_class, sighting.name
    assert len({sighting.name for sighting in SIGHTINGS}) == len(SIGHTINGS)


def test_sightings_have_the_clocks_of_their_rows() -> None:
    """Where a GPU model is listed, its row says the same boost clock."""
    compared = 0
    for sighting in SIGHTINGS:
        model = BOOK.find(Device(0, "GPU-1", sighting.name))
        if model is None:
            continue
        for unit, mhz in sighting.clock_mhz.items():
            listed = model.peak_clock_hertz.get(unit)
            if listed is not None:
                assert mhz == pytest.approx(listed / 1e6, rel=0.015), sighting.name
                compared += 1
    assert compared > 30


@given(
    major=st.integers(5, 13),
    minor=st.integers(0, 9),
    kind=st.sampled_from(get_args(GpuClass)),
    unit=st.sampled_from(["vector", "tensor"]),
)
def test_every_class_of_every_architecture_has_a_factor(
    major: int, minor: int, kind: GpuClass, unit: str
) -> None:
    """Architectures that were never seen take the mean of their class."""
    factor = boost_factor((major, minor), kind, unit)  # type: ignore[arg-type]
    assert factor is not None
    assert 0.4 < factor <= 1
