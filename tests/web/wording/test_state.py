# SPDX-License-Identifier: Apache-2.0
"""How bad a data stall is."""

from __future__ import annotations

from exporter.web.wording.facts import Range
from exporter.web.wording.state import stall_level


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
