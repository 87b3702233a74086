# SPDX-License-Identifier: Apache-2.0
"""How old a page's rows are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.dcgm.renewal import (
    DEFAULT_INTERVAL_SECONDS,
    LONGEST_STANDING_SECONDS,
    Renewal,
)


def renewed_at(*times: float) -> Renewal:
    """After scrapes in which the rows were other ones each."""
    renewal = Renewal()
    for time in times:
        assert renewal.is_new(time, time)
        assert not renewal.is_new(time, time + 0.1)
    return renewal


def test_a_page_seen_for_the_first_time_may_be_of_any_age() -> None:
    """Its own interval unknown, it is taken to be as old as dcgm-exporter's default allows."""
    renewal = renewed_at(0.0)

    assert renewal.interval_seconds is None
    assert renewal.age_seconds(None) == DEFAULT_INTERVAL_SECONDS
    assert renewal.longest_seconds == LONGEST_STANDING_SECONDS


def test_from_the_second_renewal_on_the_interval_is_known() -> None:
    """The time from the first sight to the first renewal is a part of one only."""
    assert renewed_at(0.0, 0.25).interval_seconds is None
    renewal = renewed_at(0.0, 0.25, 1.25)

    assert renewal.interval_seconds == 1.0
    assert renewal.age_seconds(None) == 0.0
    assert renewal.longest_seconds == 3.0


def test_the_mean_over_a_long_interval_is_old() -> None:
    """Its age is the whole interval, however fresh the row is."""
    renewal = renewed_at(0.0, 7.0, 37.0)

    assert renewal.age_seconds(None) == 30.0
    assert renewal.longest_seconds == 90.0


def test_parts_of_a_sample_that_appear_later_are_no_sample() -> None:
    """The longest of the last intervals counts."""
    assert renewed_at(0.0, 1.0, 30.0, 31.0, 60.0, 61.0).interval_seconds == 29.0


@given(st.lists(st.floats(0.2, 200.0), max_size=8))
def test_rows_are_never_shown_for_long(gaps: list[float]) -> None:
    """However often they are renewed."""
    renewal = renewed_at(*(sum(gaps[:count]) for count in range(len(gaps) + 1)))

    assert 0 < renewal.longest_seconds <= LONGEST_STANDING_SECONDS
    assert renewal.age_seconds(None) >= 0
