# SPDX-License-Identifier: Apache-2.0
"""What is said of a GPU beside its state: long on the page, short in the terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import THROTTLE_REASONS
from exporter.web.wording.phrases import (
    THROTTLE_WORDS,
    bounds_sentence,
    throttle_words,
    throttled_by,
)

RATIOS = st.floats(min_value=0.0, max_value=1.0)


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({}, None),
        ({"saturated": (0.0, 1.0)}, None),
        ({"saturated": (0.0, 0.98), "idle": (0.02, 0.04)}, "idle 2.0 to 4.0 %"),
        ({"saturated": (0.05, 1.0)}, None),
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
    """Trivial bounds are left out; bounds that round to one number are one number."""
    assert bounds_sentence(bounds) == (None if said is None else f"Where the time goes: {said}.")


@given(RATIOS, RATIOS)
def test_no_end_is_said_that_the_bounds_do_not_have(one: float, other: float) -> None:
    """ "At least" is for a part above 0, "at most" for one below 100 %."""
    lower, upper = sorted((one, other))
    said = bounds_sentence({"idle": (lower, upper)})
    if said is None:
        assert upper - lower > 0.9
    elif "at least" in said:
        assert lower > 0.0
    elif "at most" in said:
        assert upper < 1.0


def test_every_reason_has_words_without_abbreviations() -> None:
    """Exactly the driver's throttle reasons have words."""
    assert tuple(THROTTLE_WORDS) == THROTTLE_REASONS
    assert throttle_words("sw_power_cap") == "software power cap"
    assert not [words for words in THROTTLE_WORDS.values() if re.search(r"\b[sh]w\b|_", words)]
    assert throttle_words("of_a_newer_driver") == "of a newer driver"


def test_bits_are_reasons_in_their_order() -> None:
    """Each bit alone, all, and none."""
    for bit, reason in enumerate(THROTTLE_REASONS):
        assert throttled_by(1 << bit) == [THROTTLE_WORDS[reason]]
    assert throttled_by((1 << len(THROTTLE_REASONS)) - 1) == list(THROTTLE_WORDS.values())
    assert throttled_by(0) == []
