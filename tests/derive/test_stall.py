# SPDX-License-Identifier: Apache-2.0
"""Bounds of the time that a GPU was idle while its job waited, and what of it is plausible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.stall import Stall, stall_bounds, together
from exporter.model.snapshot import Bounds

RATIOS = st.floats(0, 1)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=200))
def test_the_bounds_hold_the_true_overlap_of_any_wait_and_any_idleness(
    instants: list[tuple[bool, bool]],
) -> None:
    """Whatever the alignment of the two, what is both waited and idle lies within."""
    n = len(instants)
    wait = sum(waiting for waiting, _ in instants) / n
    idle = sum(quiet for _, quiet in instants) / n
    stall = sum(waiting and quiet for waiting, quiet in instants) / n

    bounds = stall_bounds(wait, Bounds(idle, idle), 1.0)

    assert bounds.lower - 1e-9 <= stall <= bounds.upper + 1e-9
    assert 0 <= bounds.lower <= bounds.upper <= 1


@given(RATIOS, RATIOS)
def test_the_bounds_are_reached(wait: float, idle: float) -> None:
    """They are the tightest: full overlap gives the upper, least overlap the lower one."""
    bounds = stall_bounds(wait, Bounds(idle, idle), 1.0)
    assert bounds.upper == min(wait, idle)
    assert bounds.lower == pytest.approx(max(0.0, wait + idle - 1.0))


def test_what_is_not_known_of_the_idle_time_widens_the_bounds() -> None:
    """In seconds: 9 of 12 waited, idle for 8 to 10."""
    assert stall_bounds(9.0, Bounds(8.0, 10.0), 12.0) == Bounds(5.0, 9.0)
    assert stall_bounds(9.0, Bounds(-1.0, 7.0), 12.0) == Bounds(0.0, 7.0)
    assert stall_bounds(-1.0, Bounds(8.0, 10.0), 12.0) == Bounds(0.0, 0.0)


@pytest.mark.parametrize(
    ("of_idle", "announced", "gap", "expected"),
    [
        (None, 0.0, 0.8, None),
        (0.3, 0.0, 0.8, 0.3),
        (None, 1.0, 0.8, 1.0),
        (0.1, 0.4, 0.4, 1.0),
        (None, 0.2, 0.8, 0.25),
        (0.5, 0.2, 0.8, 0.625),
        (0.5, 0.2, 0.0, 0.5),
        (0.5, 0.2, None, 0.5),
    ],
)
def test_an_announced_wait_explains_the_idle_time_that_it_can_overlap(
    of_idle: float | None, announced: float, gap: float | None, expected: float | None
) -> None:
    """And of the rest as much as of the last seconds."""
    stall = Stall(of_idle, announced=announced).within(gap)
    assert stall.of_idle == (None if expected is None else pytest.approx(expected))


def test_ranks_that_share_a_gpu_are_bounded_together() -> None:
    """The lower bound is the largest of the ranks, the upper one their sum."""
    assert together([]) is None
    assert together([Bounds(0.1, 0.4)]) == Bounds(0.1, 0.4)
    assert together([Bounds(0.1, 0.4), Bounds(0.2, 0.3)]) == Bounds(0.2, 0.7)
    assert together([Bounds(0.5, 0.8)] * 3) == Bounds(0.5, 1.0)
