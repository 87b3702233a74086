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


NAN = math.nan
ROWS = [(10 * k, 10 * k + 10) for k in range(20)]


@pytest.mark.parametrize(
    ("rows", "seconds", "reduced"),
    [
        ([], 0.0, None),
        ([(0, 10, (10.0,)), (10, 40, (50.0,))], 0.04, (40.0, 60.0)),
        ([(0, 10, (10.0,)), (5, 20, (40.0,)), (12, 18, (99.0,))], 0.02, (25.0, 50.0)),
        ([(-1000, 5, (90.0,)), (5, 15, (3.0,))], 0.01, (3.0, 3.0)),
        ([(0, 1001, (10.0,))], 0.0, None),
        # As if the missing one were like the others.
        ([(*row, (NAN if row[0] == 30 else 7.0,)) for row in ROWS], 0.2, (7.0, 140.0)),
        ([(*row, (NAN if row[0] < 30 else 7.0,)) for row in ROWS], 0.2, None),
    ],
    ids=["none", "weighted", "once", "since 0", "too long", "one missing", "many missing"],
)
def test_a_mean_is_weighted_by_time(
    rows: list[tuple[int, int, tuple[float, ...]]],
    seconds: float,
    reduced: tuple[float, float] | None,
) -> None:
    """Time is counted once; without enough values there is no mean, and not 0."""
    window = taken(Samples(1), *rows)

    assert window.covered_seconds == pytest.approx(seconds)
    assert window.metrics[0] == (None if reduced is None else pytest.approx(reduced))


def test_the_next_interval_goes_on_where_the_last_one_ended() -> None:
    """Each metric has its own mean."""
    samples = Samples(2)
    assert taken(samples, (0, 10, (10.0, 1.0))).sample_seconds == pytest.approx(0.01)
    samples.clear()

    window = taken(samples, (0, 10, (90.0, 9.0)), (10, 20, (20.0, 2.0)))

    assert list(window.metrics) == [pytest.approx((20.0, 20.0)), pytest.approx((2.0, 2.0))]


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
    if window.metrics[0] is not None:
        assert min(known) - 1e-9 <= window.metrics[0][0] <= max(known) + 1e-9
