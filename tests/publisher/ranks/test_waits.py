# SPDX-License-Identifier: Apache-2.0
"""What is judged of a rank's last seconds, from what it said."""

from __future__ import annotations

import pytest

from exporter.publisher.ranks.gaps import GapClock
from exporter.publisher.ranks.waits import RankSummary, Waits


def said(seconds: float, wait: float, stall: float | None = None) -> RankSummary:
    """Return a report of a rank that announces no waits."""
    return RankSummary(seconds, wait, stall, seconds, False, False, False, False)


@pytest.mark.parametrize(("apart", "judged"), [(0.4, False), (0.6, True)])
def test_nothing_is_judged_over_less_than_half_a_second(apart: float, *, judged: bool) -> None:
    """Two reports close together give no ratio."""
    waits = Waits()
    waits.add(said(100.0, 5.0), None)
    waits.add(said(100.0 + apart, 5.0 + apart / 2), None)
    waits.judge(100.0 + apart, None)
    assert waits.wait_ratio == (pytest.approx(0.5) if judged else None)


@pytest.mark.parametrize(("idle_ratio", "explained"), [(0.0005, False), (0.002, True)])
def test_without_idle_time_there_is_nothing_to_explain(
    idle_ratio: float, *, explained: bool
) -> None:
    """Below a thousandth of the time."""
    gaps, waits = GapClock(), Waits()
    for second in range(1000, 1013):
        gaps.advance(float(second), 1.0, idle_ratio)
        waits.add(said(float(second), 0.1 * second, 1e-3 * second), gaps)
    assert (waits.of_idle(1012.0) is not None) is explained
