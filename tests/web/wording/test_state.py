# SPDX-License-Identifier: Apache-2.0
"""One word for a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.model.reading import SUSPENDED
from exporter.web.wording.facts import Facts, Range, Saturation
from exporter.web.wording.recorded import HAS_ENDED
from exporter.web.wording.state import stall_level, state, tone


def near(lower: float, upper: float | None = None) -> Saturation:
    return Saturation(Range(lower, lower if upper is None else upper))


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"down_reason": "lost", "busy_ratio": 1.0}, "lost"),
        ({"down_reason": "hung: a driver call does not return"}, "lost"),
        ({"down_reason": SUSPENDED}, "suspended"),
        ({}, "unknown"),
        ({"divided": True, "power_watts": 70.0}, "MIG"),
        (
            {
                "busy_ratio": 0.7,
                "data_stall": Range(0.2, 0.3),
                "saturation": near(0.9),
                "idle": True,
                "idle_seconds": 60.0,
            },
            "starved",
        ),
        ({"busy_ratio": 0.7, "data_stall": Range(0.19, 1.0)}, "busy"),
        ({"busy_ratio": 0.1, "data_stall": Range(0.02, 0.02), "limiter": "input"}, "often idle"),
        ({"busy_ratio": 0.1, "data_stall": Range(0.02, 0.02), "input_ratio": 0.2}, "starved"),
        ({"busy_ratio": 0.9, "limiter": "compute", "input_ratio": 0.19}, "busy"),
        ({"held": True, "idle": True, "idle_seconds": 60.0, "waiting_for_data": True}, "starved"),
        ({"held": True, "idle": False, "idle_seconds": 2.0, "waiting_for_data": True}, "starved"),
        ({"busy_ratio": 0.9, "idle_seconds": 1.9, "waiting_for_data": True}, "busy"),
        ({"busy_ratio": 0.9, "waiting_for_data": True}, "busy"),
        ({"busy_ratio": 0.49, "data_stall": Range(0.19, 0.2), "limiter": "input"}, "often idle"),
        ({"busy_ratio": 0.5, "data_stall": Range(0.02, 0.02), "limiter": "input"}, "busy"),
        ({"busy_ratio": 0.2, "limiter": "input"}, "starved"),
        ({"busy_ratio": 0.2, "data_wait_ratio": 0.9}, "busy"),
        ({"busy_ratio": 0.0, "held": True, "idle": True, "idle_seconds": 10.0}, "held idle"),
        ({"busy_ratio": 0.0, "held": True, "idle": True, "idle_seconds": 9.9}, "idle"),
        ({"busy_ratio": 0.0, "held": True, "idle": True}, "idle"),
        ({"busy_ratio": 0.0, "held": False, "idle": True, "idle_seconds": 0.5}, "free"),
        ({"busy_ratio": 0.0, "held": False, "limiter": "idle"}, "free"),
        ({"idle": True, "held": False, "allocated": True}, "unopened"),
        ({"idle": True, "held": False, "allocated": False}, "free"),
        ({"idle": True, "allocated": True}, "idle"),
        ({"held": False, "allocated": True}, "unopened"),
        ({"busy_ratio": 0.4, "held": False, "allocated": True}, "busy"),
        ({"idle": True, "idle_seconds": 60.0, "held": True, "allocated": True}, "held idle"),
        ({"busy_ratio": 0.4, "idle": False, "held": False, "allocated": True}, "busy"),
        ({"busy_ratio": 0.0, "idle": True, "idle_seconds": 3600.0}, "idle"),
        ({"busy_ratio": 0.3, "held": True, "limiter": "idle"}, "often idle"),
        ({"busy_ratio": 0.0, "held": True, "limiter": "idle", "idle": False}, "often idle"),
        ({"held": False}, "unknown"),
        ({"busy_ratio": 0.0, "held": False}, "free"),
        ({"busy_ratio": 0.0, "held": False, "idle": False}, "free"),
        ({"busy_ratio": 0.0, "limiter": "unknown"}, "idle"),
        ({"busy_ratio": 0.02, "limiter": "unknown"}, "busy"),
        ({"busy_ratio": 0.0, "held": False, "measuring": True}, "measuring"),
        ({"busy_ratio": 0.9, "measuring": True}, "measuring"),
        ({"busy_ratio": 0.7, "limiter": "compute", "held": True, "idle": False}, "busy"),
        ({"busy_ratio": 1.0, "saturation": near(0.95), "limiter": "clock"}, "clock-throttled"),
        ({"busy_ratio": 1.0, "saturation": near(0.8)}, "near its roof"),
        ({"busy_ratio": 1.0, "saturation": near(0.6), "roof_ratio": {"achievable": 0.9}}, "busy"),
        ({"busy_ratio": 1.0, "saturation": near(0.6), "roof_ratio": {}}, "busy"),
        ({"busy_ratio": 1.0, "saturation": near(0.79)}, "busy"),
        ({"down_reason": HAS_ENDED}, "ended"),
        ({"busy_ratio": 1.0, "saturation": near(0.0, 0.19)}, "underused"),
        ({"busy_ratio": 1.0, "saturation": near(0.0, 1.0)}, "busy"),
        ({"busy_ratio": 0.5, "saturation": near(0.0, 0.1)}, "busy"),
        ({"saturation": near(0.0, 0.5)}, "busy"),
    ],
)
def test_states(known: dict[str, Any], expected: str) -> None:
    """The first rule that holds gives the word; what is not known decides nothing."""
    assert state(Facts(0, **known)) == expected


def test_tones() -> None:
    """A state says how good it is; one that is not known is neither good nor bad."""
    names = ("near its roof", "clock-throttled", "unopened", "free", "lost", "unknown")
    assert [tone(name) for name in names] == ["good", "warn", "warn", "calm", "bad", "neutral"]


def test_stall_levels() -> None:
    """Below 5 % nothing is wrong, from 20 % on the loader is the bottleneck."""
    ratios = (0.0, 0.049, 0.05, 0.199, 0.2, 1.0)
    assert [stall_level(Range(ratio, ratio)) for ratio in ratios] == [
        *("fine", "fine", "some", "some", "high", "high")
    ]


def test_a_stall_of_two_levels_has_none() -> None:
    """Beside "starved" a stall of 0 to 50 % is not fine."""
    assert stall_level(Range(0.0, 0.5)) == stall_level(Range(0.19, 0.2)) == ""
    assert stall_level(Range(0.2, 0.9)) == "high"
