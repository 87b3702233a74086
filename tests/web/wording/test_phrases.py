# SPDX-License-Identifier: Apache-2.0
"""What is said of a GPU beside its state: long on the page, short in the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import SUSPENDED, THROTTLE_REASONS
from exporter.model.snapshot import TIME_PARTS
from exporter.web.wording import phrases, short
from exporter.web.wording.facts import Facts, Holder, Range, Saturation
from exporter.web.wording.phrases import (
    PARTS,
    THROTTLE_WORDS,
    bounds_sentence,
    throttle_words,
    throttled_by,
)

ESTIMATE = Saturation(Range(0.0, 0.434), measured=False, source="estimate")
MEASURED = Range(0.2, 0.2)
NEAR_ITS_LIMIT = Saturation(Range(0.003, 0.79), measured=False, source="estimate")
LOOSE = Saturation(Range(0.3, 0.3), measured=False, source="estimate")


@pytest.mark.parametrize(
    ("phrase", "known", "said"),
    [
        (phrases.use, {}, "use not known"),
        (phrases.use, {"busy_ratio": 0.024}, "2.4 % used"),
        (phrases.saturation, {}, "saturation not known"),
        (phrases.saturation, {"saturation": ESTIMATE}, "0 to 43 % saturated"),
        (phrases.data_stall, {}, "no report"),
        (phrases.data_stall, {"data_wait_ratio": 0.31}, "at most 31 %"),
        (
            phrases.data_stall,
            {"data_wait_ratio": 0.31, "data_stall": MEASURED},
            "20 %",
        ),
        (phrases.data_stall, {"data_stall": Range(0.125, 0.31)}, "13 to 31 %"),
        (phrases.memory, {"memory_total_bytes": 2.0**34}, "not known"),
        (phrases.memory, {"memory_used_bytes": 2.0**32}, "4.0 GiB"),
        (phrases.power, {}, "not known"),
        (phrases.power, {"instance": 1}, "of the board"),
        (phrases.power, {"power_watts": 70.4}, "70 W"),
        (phrases.idle, {}, "idle time not known"),
        (phrases.idle, {"idle": False}, "not idle"),
        (phrases.idle, {"idle": False, "idle_ratio": 0.04}, "not idle"),
        (phrases.idle, {"idle": False, "idle_ratio": 0.8}, "idle 80 % of the last 10 s"),
        (phrases.idle, {"idle": True}, "idle"),
        (phrases.idle, {"idle": True, "held": True, "idle_seconds": 0.4}, "held idle just now"),
        (phrases.holder, {}, ""),
        (phrases.holder, {"held": True}, "held"),
        (phrases.holder, {"held": False}, "held by nobody"),
        (phrases.holder, {"holder": Holder(work_class="serving")}, "somebody (serving)"),
        (phrases.throttled, {}, ""),
        (
            phrases.throttled,
            {"throttle_reasons": ("hw_thermal",)},
            "throttled: hardware thermal slowdown",
        ),
        (phrases.down_reason, {"down_reason": SUSPENDED}, "it sleeps and is not woken"),
        (phrases.name, {"name": "NVIDIA GeForce RTX 4090"}, "RTX 4090"),
        (phrases.name, {"name": "Tesla "}, "Tesla "),
        (phrases.name, {"instance": 1}, "MIG"),
        (phrases.idle, {"idle_ratio": 0.5, "window_seconds": 2.9}, "idle 50 % of the last 3 s"),
        (phrases.idle, {"idle_ratio": 0.5, "window_seconds": 0.4}, "idle 50 % of the last 1 s"),
        (phrases.stall_level, {"data_wait_ratio": 0.5, "window_seconds": 2}, "of the last 2 s"),
        (phrases.data_stall, {"data_wait_ratio": 0.5, "idle_ratio": 0.25}, "at most 25 %"),
    ],
)
def test_phrases(phrase: Callable[[Facts], str], known: dict[str, Any], said: str) -> None:
    """What is not known is said to be so."""
    assert phrase(Facts(0, **known)) == said


@pytest.mark.parametrize(
    ("limiter", "state", "said"),
    [
        ("compute", "busy", "limited by compute"),
        ("clock", "clock-throttled", "limited by its clock"),
        ("idle", "starved", "often idle"),
        ("compute", "starved", ""),
        ("memory", "starved", ""),
        ("latency", "starved", ""),
        ("unknown", "starved", ""),
        ("input", "starved", "waits for its input"),
        ("compute", "measuring", ""),
        ("idle", "often idle", ""),
        (None, "busy", ""),
    ],
)
def test_the_limiter_is_not_said_twice(limiter: str | None, state: str, said: str) -> None:
    """Beside a state that already says that the GPU was idle."""
    assert phrases.limiter(Facts(0, limiter=limiter), state) == said


@pytest.mark.parametrize(
    ("phrase", "known", "said"),
    [
        (short.saturation, {}, None),
        (short.saturation, {"saturation": Saturation(Range(0.56, 0.56))}, "56 %"),
        (short.saturation, {"saturation": ESTIMATE}, "0\N{EN DASH}43 %"),
        (short.saturation, {"saturation": NEAR_ITS_LIMIT}, "0.3\N{EN DASH}79 %"),
        (short.saturation, {"saturation": LOOSE}, "30\N{EN DASH}30 %"),
        (short.data_stall, {"data_wait_ratio": 0.31}, "<= 31 %"),
        (short.data_stall, {"data_stall": Range(0.2, 0.2)}, "20 %"),
        (short.data_stall, {"data_stall": Range(0.125, 0.31)}, "13\N{EN DASH}31 %"),
        (short.data_stall, {"data_wait_ratio": 0.31, "idle_ratio": 0.1}, "<= 10 %"),
        (short.limiter, {"limiter": "compute", "input_ratio": 0.3}, None),
        (short.limiter, {"limiter": "input", "input_ratio": 0.3}, "input"),
        (short.limiter, {"limiter": "compute", "measuring": True}, None),
        (short.limiter, {"limiter": "idle", "idle": True}, "idle"),
        (short.limiter, {"limiter": "idle", "idle": False}, "often idle"),
        (short.memory, {"memory_total_bytes": 2.0**34}, "-/16"),
        (short.power, {"power_watts": 70.4}, "70/-"),
        (short.idle, {"idle": True, "held": False}, "idle free"),
        (short.idle, {"idle": False, "idle_ratio": 0.8}, "80 % idle"),
        (short.idle, {"idle": True, "held": True, "idle_seconds": 3720.0}, "1h02m held"),
        (short.held_idle, {"held_idle_seconds": -1.0}, "0s"),
        (short.holder, {"holder": Holder(command="python3")}, "python3"),
        (short.holder, {"holder": Holder()}, None),
        (short.down, {}, None),
        (short.down, {"down_reason": "lost"}, "lost"),
        (short.down, {"down_reason": "no answer"}, "lost: no answer"),
        (short.down, {"down_reason": SUSPENDED}, SUSPENDED),
    ],
)
def test_short_phrases(
    phrase: Callable[[Facts], str | None], known: dict[str, Any], said: str | None
) -> None:
    """They fit a column; what is not known is nothing, for the table to mark."""
    assert phrase(Facts(0, **known)) == said


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0s"),
        (59.9, "59s"),
        (303, "5m03s"),
        (3720, "1h02m"),
        (86399, "23h59m"),
        (273600, "3d04h"),
    ],
)
def test_short_durations(seconds: float, text: str) -> None:
    """Two units, so that the column stays narrow."""
    assert short.duration(seconds) == text


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


def test_every_reason_has_words_without_abbreviations() -> None:
    """Those that the driver may give, and no others."""
    assert tuple(THROTTLE_WORDS) == THROTTLE_REASONS
    assert throttle_words("sw_power_cap") == "software power cap"
    assert not [words for words in THROTTLE_WORDS.values() if re.search(r"\b[sh]w\b|_", words)]
    assert throttle_words("of_a_newer_driver") == "of a newer driver"


def test_bits_are_reasons_in_their_order() -> None:
    """Each bit alone, all of them, and none."""
    for bit, reason in enumerate(THROTTLE_REASONS):
        assert throttled_by(1 << bit) == [THROTTLE_WORDS[reason]]
    assert throttled_by((1 << len(THROTTLE_REASONS)) - 1) == list(THROTTLE_WORDS.values())
    assert throttled_by(0) == []
