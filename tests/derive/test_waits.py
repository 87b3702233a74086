# SPDX-License-Identifier: Apache-2.0
"""The data stall of a share, by what its ranks report and what bounds it from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.waits import (
    data_stall,
    idle_ratio,
    live_ranks,
    wait_for_data,
    waiting,
    worst_rank,
)
from exporter.model.reading import Place
from exporter.model.snapshot import Bounds, Rank, Recent, Share, ShareTotals
from tests.derive.ranks import NOW, rank_of

RATIOS = st.floats(0.0, 1.0)
RATIOS_OR_NONE = st.none() | RATIOS


def share_of(
    idle: float | None = None,
    *,
    idle_for: float | None = None,
    seconds: float = 10.0,
    stall: Mapping[str, Bounds] | None = None,
) -> Share:
    """A share that was idle for a part of its last seconds, with a stall seen from outside."""
    recent = Recent(seconds=seconds, time_parts={} if idle is None else {"idle": idle})
    totals = ShareTotals(idle_for_seconds=idle_for)
    return Share(None, None, totals, recent=recent, data_stall=stall or {})


@st.composite
def ranks_of(draw: st.DrawFn) -> list[Rank]:
    """Ranks of any kind, whose stall is part of their wait."""
    found = []
    for number in range(draw(st.integers(0, 3))):
        wait = draw(RATIOS_OR_NONE)
        stall = None if wait is None else draw(st.none() | st.floats(0.0, wait))
        rank = rank_of(
            number,
            data_wait_ratio=wait,
            data_stall_ratio=stall,
            verified=draw(st.sampled_from((True, False, None))),
            phase=draw(st.sampled_from((None, "data", "checkpoint"))),
            last_report_timestamp_seconds=NOW - draw(st.floats(-1.0, 30.0)),
        )
        found.append(rank)
    return found


def test_idle_time_is_that_of_the_parts_else_what_is_not_busy() -> None:
    assert idle_ratio(None) is None
    assert idle_ratio(Recent(seconds=10.0)) is None
    assert idle_ratio(Recent(seconds=10.0, time_parts={"idle": 0.2}, busy_ratio=0.5)) == 0.2
    assert idle_ratio(Recent(seconds=10.0, busy_ratio=0.7)) == pytest.approx(0.3)
    assert idle_ratio(Recent(seconds=10.0, busy_ratio=1.02)) == 0.0


def test_only_ranks_with_a_process_live() -> None:
    here, there, gone = rank_of(0), rank_of(1, gpu_instance=2), rank_of(2, processes=0)
    assert live_ranks([here, there, gone]) == {
        Place("GPU-0", None): [here],
        Place("GPU-0", 2): [there],
    }


def test_the_worst_rank_stalls_most_then_waits_now_then_waited_most() -> None:
    calm = rank_of(0, data_wait_ratio=0.5)
    longer = rank_of(1, data_wait_ratio=0.6)
    now = rank_of(2, data_wait_ratio=0.1, phase="data")
    stalled = rank_of(3, data_stall_ratio=0.05, data_wait_ratio=0.05)
    unknown = rank_of(4, data_stall_ratio=0.9, data_wait_ratio=0.9, verified=False)
    assert worst_rank([unknown]) is None
    assert worst_rank([calm, longer, unknown]) == longer
    assert worst_rank([longer, now, calm]) == now
    assert worst_rank([now, stalled, longer]) == stalled
    assert wait_for_data([calm, longer, now, unknown]) == 0.6
    assert wait_for_data([unknown]) is None
    assert waiting([calm, now])
    assert not waiting([calm, replace(now, verified=None)])


def test_a_measured_stall_is_that_of_the_worst_rank_and_within_the_idle_time() -> None:
    ranks = [rank_of(0, data_stall_ratio=0.2), rank_of(1, data_stall_ratio=0.4)]
    assert data_stall(share_of(0.5), ranks, NOW) == Bounds(0.4, 0.4)
    assert data_stall(share_of(0.3), ranks, NOW) == Bounds(0.3, 0.3)
    assert data_stall(None, ranks, NOW) == Bounds(0.4, 0.4)
    assert data_stall(share_of(0.5), ranks[:1], NOW) == Bounds(0.2, 0.2)


def test_what_bounds_it_from_outside_has_to_fit_the_last_seconds() -> None:
    share = share_of(0.4, stall={"client": Bounds(0.1, 0.9), "procfs": Bounds(0.2, 0.8)})
    assert data_stall(share, [], NOW) == Bounds(0.2, 0.4)
    waits = [rank_of(0, data_wait_ratio=0.3)]
    assert data_stall(share, waits, NOW) == Bounds(0.2, 0.3)
    # The host waited for 0.9 of the time and the GPU rested for 0.4: both at least for 0.3.
    long = [rank_of(0, data_wait_ratio=0.9), rank_of(1, data_wait_ratio=0.1)]
    assert data_stall(share, long, NOW) == Bounds(0.9 + 0.4 - 1.0, 0.4)
    # Of a rank whose wait is not known all of the idle time may be.
    assert data_stall(share, [*waits, rank_of(1)], NOW) == Bounds(0.2, 0.4)


def test_an_unfinished_wait_counts_from_its_beginning() -> None:
    waits = [rank_of(0, phase="data", last_report_timestamp_seconds=NOW - 4.0)]
    assert data_stall(share_of(0.6, idle_for=30.0), waits, NOW) == Bounds(0.4, 0.6)
    assert data_stall(share_of(0.6, idle_for=3.0), waits, NOW) == Bounds(0.3, 0.6)
    assert data_stall(share_of(0.6, idle_for=30.0), waits, None) is None
    assert data_stall(share_of(0.6, idle_for=None), waits, NOW) is None
    assert data_stall(share_of(1.0, idle_for=30.0, seconds=2.0), waits, NOW) == Bounds(1.0, 1.0)
    measured = [replace(waits[0], data_stall_ratio=0.1)]
    assert data_stall(share_of(0.6, idle_for=30.0), measured, NOW) == Bounds(0.4, 0.4)


@given(
    idle=RATIOS_OR_NONE,
    idle_for=st.none() | st.floats(0.0, 60.0),
    ends=st.none() | st.tuples(RATIOS, RATIOS),
    ranks=ranks_of(),
    now=st.none() | st.just(NOW),
)
def test_a_stall_is_a_part_of_the_idle_time_and_only_of_verified_ranks(
    idle: float | None,
    idle_for: float | None,
    ends: tuple[float, float] | None,
    ranks: list[Rank],
    now: float | None,
) -> None:
    seen = {} if ends is None else {"client": Bounds(min(ends), max(ends))}
    share = share_of(idle, idle_for=idle_for, stall=seen)
    found = data_stall(share, ranks, now)
    assert found == data_stall(share, [rank for rank in ranks if rank.verified], now)
    if found is not None:
        assert 0.0 <= found.lower <= found.upper <= (1.0 if idle is None else idle)
