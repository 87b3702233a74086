# SPDX-License-Identifier: Apache-2.0
"""How well the clock of a datasheet's peak follows from NVML's maximum."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Device
from exporter.specs import load_specs
from exporter.specs.boost import SIGHTINGS, boost_factor, leave_one_out_errors
from exporter.specs.gpu_class import GpuClass, gpu_class

PAGE = Path(__file__).parent.parent.parent / "docs" / "roofline.md"
CLASSES: tuple[GpuClass, ...] = ("data_center", "workstation", "geforce", "laptop")
GOAL = 0.08


@pytest.mark.parametrize("kind", CLASSES)
def test_the_error_of_a_gpu_that_was_not_seen(kind: GpuClass) -> None:
    """Each sighting is estimated from all others; the goal is 8 %, and the worst is within 10."""
    errors = [abs(error) for error in leave_one_out_errors(kind).values()]
    assert len(errors) >= 9
    assert sum(errors) / len(errors) <= GOAL
    assert max(errors) <= 0.1


def test_the_page_publishes_these_errors() -> None:
    """docs/roofline.md has the mean and the largest error of each class."""
    text = PAGE.read_text(encoding="utf-8")
    words = {
        "data_center": "data centre",
        "workstation": "workstation",
        "geforce": "GeForce",
        "laptop": "laptop",
    }
    for kind in CLASSES:
        errors = [abs(error) for error in leave_one_out_errors(kind).values()]
        models = len({name for name, _ in leave_one_out_errors(kind)})
        mean, worst = 100 * sum(errors) / len(errors), 100 * max(errors)
        row = f"| {words[kind]} | {models} | {mean:.1f} % | {worst:.1f} % |"
        assert row in re.sub(r" +", " ", text), row


def test_a_maximum_is_never_below_the_boost_clock() -> None:
    """So that a factor never exceeds 1."""
    for sighting in SIGHTINGS:
        assert 0 < sighting.clock_mhz["vector"] <= sighting.max_mhz
        assert sighting.clock_mhz.get("tensor", 1) <= sighting.clock_mhz["vector"]


def test_sightings_are_of_the_class_that_their_name_says() -> None:
    """A row in the wrong class would spoil two factors."""
    for sighting in SIGHTINGS:
        device = Device(0, "GPU-1", sighting.name, compute_capability=sighting.capability)
        assert gpu_class(device) == sighting.gpu_class, sighting.name
    assert len({sighting.name for sighting in SIGHTINGS}) == len(SIGHTINGS)


def test_sightings_have_the_clocks_of_their_rows() -> None:
    """Where a GPU model is listed, its row says the same boost clock."""
    book = load_specs()
    compared = 0
    for sighting in SIGHTINGS:
        model = book.find(Device(0, "GPU-1", sighting.name))
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
    assert 0.6 < factor <= 1


def test_nothing_seen_is_no_factor() -> None:
    """The module's maximum is its peak clock; of the others nothing can be said."""
    assert boost_factor((8, 9), "geforce", "vector", ()) is None
    assert boost_factor((8, 7), "module", "vector", ()) == 1
