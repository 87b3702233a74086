# SPDX-License-Identifier: Apache-2.0
"""Windows of ranks that share a GPU: their totals hold the truth, and never fall."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.publisher.ranks.gaps import GapClock, GapTimes
from exporter.publisher.ranks.windows import (
    BOUNDS_SECONDS,
    MOST_COUNTED,
    Mark,
    SharedStall,
    StallWindow,
    was_observed,
)

SECONDS = 40
INSTANTS = st.lists(st.booleans(), min_size=SECONDS, max_size=SECONDS)


def gap_clock(idle: Sequence[bool]) -> GapClock:
    clock = GapClock()
    clock.advance(0.0, 0.0, None)
    for second, quiet in enumerate(idle, start=1):
        clock.advance(float(second), 1.0, 1.0 if quiet else 0.0)
    return clock


@given(
    idle=INSTANTS,
    waits=st.lists(INSTANTS, min_size=1, max_size=3),
    reported=st.lists(
        st.lists(st.integers(1, SECONDS), min_size=2, max_size=10, unique=True),
        min_size=3,
        max_size=3,
    ),
)
def test_the_totals_of_ranks_that_share_a_gpu_hold_the_truth(
    idle: list[bool], waits: list[list[bool]], reported: list[list[int]]
) -> None:
    """Any of them may cause the idle time; each reports at its own times."""
    clocks = [gap_clock(idle[:second]) for second in range(SECONDS + 1)]
    shared = SharedStall()
    lower = upper = 0.0
    windows: dict[int, StallWindow] = {}
    times = [sorted(each) for each in reported[: len(waits)]]

    def mark(rank: int, second: int) -> Mark:
        return Mark(float(second), float(sum(waits[rank][:second])), clocks[second].at(second))

    for second in range(1, SECONDS + 1):
        for rank, reports in enumerate(times):
            if second not in reports:
                continue
            if rank not in windows:
                windows[rank] = StallWindow(mark(rank, second))
                continue
            window = windows[rank].add(
                mark(rank, second), announced=False, several=False, ending=second == reports[-1]
            )
            assert was_observed(window)
            if window.over:
                assert window.end.seconds - window.begin.seconds >= BOUNDS_SECONDS or (
                    second == reports[-1]
                )
                windows[rank] = StallWindow(mark(rank, second))
            more = shared.add(rank, window, alone=len(waits) == 1)
            assert more.lower >= 0
            assert more.upper >= 0
            lower += more.lower
            upper += more.upper
    stalled = sum(
        idle[second]
        and any(
            waits[rank][second] and reports[0] <= second < reports[-1]
            for rank, reports in enumerate(times)
        )
        for second in range(SECONDS)
    )
    assert lower <= stalled + 1e-6
    assert upper >= stalled - 1e-6
    assert upper <= sum(idle) + len(waits) * 0.02 * SECONDS


def test_what_is_counted_long_ago_is_remembered_together() -> None:
    """A long window adds nothing that shorter windows have added."""
    shared = SharedStall()

    def mark(second: int) -> Mark:
        return Mark(float(second), float(second), clock_at(second))

    def clock_at(second: int) -> GapTimes:
        return GapTimes(float(second), float(second), float(second), float(second))

    long = StallWindow(mark(0))
    counted = 0.0
    for second in range(10, 1000, 10):
        short = StallWindow(mark(second - 10))
        window = short.add(mark(second), announced=True, several=False, ending=False)
        counted += shared.add("short", window, alone=False).lower
    assert counted == pytest.approx(990.0, rel=0.01)
    assert len(shared._counted) <= MOST_COUNTED
    window = long.add(mark(990), announced=True, several=False, ending=False)
    more = shared.add("long", window, alone=False)
    assert counted + more.lower <= 990.0


def test_of_several_processes_of_one_rank_nothing_is_known_at_least() -> None:
    """Their waits may overlap, so there is no lower bound."""
    times = [GapTimes(float(s), float(s), float(s), float(s)) for s in (0, 10)]
    window = StallWindow(Mark(0.0, 0.0, times[0])).add(
        Mark(10.0, 20.0, times[1]), announced=False, several=True, ending=False
    )
    assert (window.bounds.lower, window.bounds.upper) == (0.0, 10.0)
    assert window.other_of_idle == 0.0


def test_an_unobserved_window_infers_nothing() -> None:
    """If less than nine tenths of it were observed."""
    begin = Mark(0.0, 0.0, GapTimes(0.0, 0.0, 0.0, 0.0))
    for observed, seen in ((8.9, False), (9.1, True)):
        end = Mark(10.0, 10.0, GapTimes(observed, observed, observed, 10.0))
        window = StallWindow(begin).add(end, announced=True, several=False, ending=False)
        assert was_observed(window) == seen
