# SPDX-License-Identifier: Apache-2.0
"""When something is due that runs again and again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.clock import next_due_seconds


@pytest.mark.parametrize(
    ("due", "now", "expected"),
    [
        (10.0, 10.25, 11.0),
        (10.0, 11.0, 12.0),
        (10.0, 13.5, 14.0),
        (10.0, 14.0, 15.0),
    ],
    ids=["in time", "at the next", "late", "late by whole intervals"],
)
def test_what_is_late_is_skipped(due: float, now: float, expected: float) -> None:
    """It does not run twice to catch up, and keeps its phase."""
    assert next_due_seconds(due, 1.0, now) == expected


@given(due=st.integers(0, 10**6), interval=st.integers(1, 1000), late=st.integers(0, 10**6))
def test_it_is_due_within_one_interval(due: int, interval: int, late: int) -> None:
    """At a whole number of intervals after the time before."""
    now = due + late
    found = next_due_seconds(due, interval, now)

    assert now < found <= now + interval
    assert (found - due) % interval == 0
