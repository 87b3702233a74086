# SPDX-License-Identifier: Apache-2.0
"""The mean of samples is weighted by their duration."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.cupti.session import SampledWindow, Samples

MILLISECOND = 1_000_000


def taken(samples: Samples, *rows: tuple[int, int, tuple[float, ...]]) -> SampledWindow:
    """Take (start, end, values), in milliseconds after 1 s."""
    for start, end, values in rows:
        if samples.admits(*(1000 * MILLISECOND + edge * MILLISECOND for edge in (start, end))):
            samples.values.extend(values)
    return samples.window()


def test_a_mean_is_weighted_by_time() -> None:
    window = taken(Samples(2), (0, 10, (10.0, 1.0)), (10, 40, (50.0, 2.0)))

    assert window.covered_seconds == pytest.approx(0.04)
    assert window.sample_seconds == pytest.approx(0.02)
    assert window.means[0] == pytest.approx(40.0)
    assert window.totals[1] == pytest.approx(3.0)


def test_nothing_sampled_is_no_mean_and_not_zero() -> None:
    assert Samples(2).window() == SampledWindow(0.0, 0.0, (None, None), (None, None))


def test_a_sample_that_began_at_zero_is_not_counted() -> None:
    samples = Samples(1)

    assert not samples.admits(0, 5 * MILLISECOND)
    assert samples.admits(5 * MILLISECOND, 15 * MILLISECOND)
    samples.values.append(3.0)
    assert samples.window().covered_seconds == pytest.approx(0.01)


def test_time_is_counted_once() -> None:
    window = taken(Samples(1), (0, 10, (10.0,)), (5, 20, (40.0,)), (12, 18, (99.0,)))

    assert window.covered_seconds == pytest.approx(0.02)
    assert window.means[0] == pytest.approx(25.0)


def test_a_sample_longer_than_a_second_is_not_of_that_second() -> None:
    assert taken(Samples(1), (0, 1001, (10.0,))).means == (None,)


def test_a_value_that_is_none_leaves_its_time_out() -> None:
    rows = [(10 * k, 10 * k + 10, (math.nan if k == 3 else 7.0, 1.0)) for k in range(20)]

    window = taken(Samples(2), *rows)

    assert list(window.means) == [pytest.approx(7.0), pytest.approx(1.0)]
    assert window.totals[0] == pytest.approx(140.0)  # as if the one were like the others


def test_a_metric_without_values_for_most_of_the_time_is_absent() -> None:
    rows = [(10 * k, 10 * k + 10, (math.nan if k < 3 else 7.0, 1.0)) for k in range(10)]

    assert list(taken(Samples(2), *rows).means) == [None, pytest.approx(1.0)]


def test_the_next_interval_goes_on_where_the_last_one_ended() -> None:
    samples = Samples(1)
    taken(samples, (0, 10, (10.0,)))
    samples.clear()

    window = taken(samples, (0, 10, (90.0,)), (10, 20, (20.0,)))

    assert list(window.means) == [pytest.approx(20.0)]


@given(
    st.lists(
        st.tuples(
            st.integers(-50, 1500), st.integers(0, 1500), st.floats(0, 100) | st.just(math.nan)
        ),
        max_size=40,
    )
)
def test_whatever_comes_a_mean_lies_between_the_values(
    rows: list[tuple[int, int, float]],
) -> None:
    window = taken(Samples(1), *((start, end, (value,)) for start, end, value in rows))

    known = [value for *_, value in rows if not math.isnan(value)]
    ends = [end for _, end, _ in rows]
    assert 0 <= window.covered_seconds <= (max(ends, default=0) + 50) / 1000 + 1e-9
    mean = window.means[0]
    if mean is not None:
        assert min(known) - 1e-9 <= mean <= max(known) + 1e-9
