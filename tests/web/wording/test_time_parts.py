# SPDX-License-Identifier: Apache-2.0
"""What is said of bounds of where the time goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.snapshot import TIME_PARTS
from exporter.web.wording.phrases import PARTS, bounds_sentence

RATIOS = st.floats(min_value=0.0, max_value=1.0)


def test_every_part_has_a_name() -> None:
    assert sorted(PARTS) == sorted(TIME_PARTS)
    assert len(set(PARTS.values())) == len(PARTS)


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({}, None),
        ({"saturated": (0.0, 1.0)}, None),
        ({"saturated": (0.3, 1.0)}, "at its limit at least 30 %"),
        ({"saturated": (0.553, 0.99)}, "at its limit 55 to 99 %"),
        ({"narrow": (0.0, 0.44)}, "too few SMs busy at most 44 %"),
        ({"clock": (0.0, 0.0)}, "lost to the clock 0 %"),
        ({"idle": (0.2, 0.2)}, "idle 20 %"),
        ({"idle": (1.0, 1.0)}, "idle 100 %"),
        (
            {"idle": (0.0, 0.1), "unsaturated": (0.0, 0.995), "saturated": (0.5, 0.6)},
            "at its limit 50 to 60 %; idle at most 10 %",
        ),
    ],
)
def test_what_bounds_say(bounds: dict[str, tuple[float, float]], said: str | None) -> None:
    """Bounds that say nothing are left out; ends that read the same are one number."""
    assert bounds_sentence(bounds) == (None if said is None else f"Where the time goes: {said}.")


@given(RATIOS, RATIOS)
def test_no_end_is_said_that_the_bounds_do_not_have(one: float, other: float) -> None:
    """At least is only said of a part that cannot be 0, at most of one that cannot be all."""
    lower, upper = sorted((one, other))
    said = bounds_sentence({"idle": (lower, upper)})
    if said is None:
        assert upper >= 0.99
        assert lower < 0.001
    elif "at least" in said:
        assert lower > 0.0
    elif "at most" in said:
        assert upper < 1.0
