# SPDX-License-Identifier: Apache-2.0
"""A bucket lets so many requests through, and then one an interval."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exporter.web.access.auth import Bucket
from exporter.web.access.config import RateLimit


def test_a_burst_and_then_one_each_interval() -> None:
    """The bucket starts full and does not overflow."""
    bucket = Bucket(RateLimit(2.0, 3), 100.0)

    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.retry_after_seconds == 2
    assert [bucket.take(at) for at in (101.0, 102.0, 102.0, 103.9, 104.0)] == [
        False,
        True,
        False,
        False,
        True,
    ]
    assert [bucket.take(1000.0) for _ in range(4)] == [True, True, True, False]


def test_without_a_burst_nothing_passes() -> None:
    """As in Go."""
    bucket = Bucket(RateLimit(1.0, 0), 0.0)

    assert not any(bucket.take(float(at)) for at in range(0, 1000, 100))


@given(
    st.floats(1e-9, 1e6),
    st.integers(0, 50),
    st.lists(st.floats(0, 100), max_size=60),
)
def test_no_more_pass_than_were_promised(interval: float, burst: int, gaps: list[float]) -> None:
    """Over any time: the burst, and one for each interval that has passed."""
    bucket, now, passed = Bucket(RateLimit(interval, burst), 0.0), 0.0, 0
    for gap in gaps:
        now += gap
        passed += bucket.take(now)

    assert passed <= burst + now / interval + 1e-6
