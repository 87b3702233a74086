# SPDX-License-Identifier: Apache-2.0
"""With a duty cycle, one burst is sampled in each cycle, at a random time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.cupti.program import CYCLE_SECONDS, SHORTEST_BURST_SECONDS, Duty

STEP_SECONDS = 0.25


def bursts(ratio: float, seconds: float, draw: float) -> Iterator[tuple[bool, float]]:
    """Yield (on, seconds) for each period of sampling or pause."""
    duty = Duty(ratio, 1000.0, lambda: draw)
    times = (1000.0 + STEP_SECONDS * number for number in range(round(seconds / STEP_SECONDS)))
    for is_on, moments in groupby(times, duty.is_on):
        yield is_on, STEP_SECONDS * sum(1 for _ in moments)


@given(st.floats(0.05, 0.99), st.floats(0, 0.999))
def test_each_minute_has_its_share_in_one_piece(ratio: float, draw: float) -> None:
    lengths = [length for is_on, length in bursts(ratio, 10 * CYCLE_SECONDS, draw) if is_on]

    assert sum(lengths) == pytest.approx(10 * ratio * CYCLE_SECONDS, abs=10 * STEP_SECONDS)
    assert 1 <= len(lengths) <= 10


@pytest.mark.parametrize("ratio", [0.01, 0.02, 0.05])
def test_a_burst_is_never_too_short_to_measure_anything(ratio: float) -> None:
    lengths = [length for is_on, length in bursts(ratio, 1800.0, 0.5) if is_on]

    assert min(lengths) >= SHORTEST_BURST_SECONDS - STEP_SECONDS
    assert sum(lengths) == pytest.approx(1800.0 * ratio, rel=0.1)


def test_all_of_the_time_is_one_burst() -> None:
    assert list(bursts(1.0, 600.0, 0.5)) == [(True, 600.0)]
