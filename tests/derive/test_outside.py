# SPDX-License-Identifier: Apache-2.0
"""What the states of a loop and of its workers show, and the bounds of waits by samples of them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.derive.outside import Moment, host_activity, judged, share_bounds, wait_bounds
from exporter.model.host import HostTotals, ThreadStates
from tests.derive.readings import known

STEP = 0.1


def states(*moments: tuple[str, str]) -> list[ThreadStates]:
    return [ThreadStates(n * STEP, *each) for n, each in enumerate(moments)]


@pytest.mark.parametrize(
    ("main", "workers", "certain", "possible"),
    [
        ("Q", "R", True, True),
        ("Q", "QD", True, True),
        ("Q", "QW", True, True),
        ("S", "R", True, True),
        ("Q", "Q", False, True),
        ("Q", "QS", False, True),
        ("R", "Q", False, False),
        ("R", "R", False, True),
        ("R", "", False, True),
        ("W", "R", False, True),
        ("D", "R", False, True),
        ("D", "Q", False, False),
        ("T", "R", False, False),
        ("Q", "T", False, True),
    ],
)
def test_one_moment(main: str, workers: str, certain: bool, possible: bool) -> None:
    """A wait is certain if the loop sleeps where it can wait for a batch, and a worker works."""
    assert judged(states((main, workers))) == [Moment(certain, possible)]


def test_a_queue_that_is_refilled_is_no_wait() -> None:
    """Had the loop waited for data, it would have woken at the first batch: not one moment of its
    sleep is certain, however long the workers took."""
    refill = [("Q", "RR")] * 80 + [("Q", "QR")] * 20 + [("Q", "QQ")] * 5
    assert not any(each.certain for each in judged(states(*refill)))
    assert all(each.certain for each in judged(states(*refill[:100])))


def test_workers_that_rest_for_a_second_have_a_full_queue() -> None:
    """Then the loop waits for something else; a shorter rest says nothing."""
    short, long = judged(states(*[("Q", "QQ")] * 8)), judged(states(*[("Q", "QQ")] * 20))
    assert all(each.possible for each in short)
    assert not any(each.possible for each in long)
    unseen = judged(states(*[("Q", "QS")] * 20))
    assert all(each.possible for each in unseen), "asleep in a place that cannot be seen"


def test_a_loader_that_is_ahead_now_and_then_claims_nothing_around() -> None:
    """Three seconds before and after."""
    moments = judged(states(*[("Q", "R"), ("R", "R")] * 40, ("R", "Q"), *[("Q", "R")] * 80))
    rest = 80
    near = [n for n, each in enumerate(moments) if each.certain and abs(n - rest) <= 29]
    assert not near
    assert any(each.certain for each in moments[:40])
    assert all(each.certain for each in moments[112:])


@given(st.integers(0, 400), st.integers(0, 400))
def test_the_share_of_moments_lies_within_its_bounds(some: int, more: int) -> None:
    """Also where all or none of them show it."""
    count = some + more
    bounds = share_bounds(some, count)
    assert 0 <= bounds.lower <= bounds.upper <= 1
    if count:
        assert bounds.lower - 1e-9 <= some / count <= bounds.upper + 1e-9
    assert share_bounds(count, count).upper == 1
    assert share_bounds(0, count).lower == 0


@settings(deadline=None)
@given(st.floats(0.02, 3.0), st.floats(0.0, 1.0), st.integers(0, 10**6))
def test_samples_bound_the_wait_of_a_periodic_loop(period: float, part: float, seed: int) -> None:
    """Whatever the period, in nearly all of 100 windows of 10 s."""
    draw = random.Random(seed)
    within = 0
    for _ in range(100):
        phase, at, seen = draw.uniform(0, period), 0.0, []
        while at <= 10.0:
            waits = (at + phase) % period < part * period
            seen.append(ThreadStates(at, "Q" if waits else "R", "R"))
            at += draw.uniform(0.05, 0.15)
        bounds = known(wait_bounds(seen, judged(seen), 0.0, 10.0))
        # What runs may also be the taking of a batch.
        assert bounds.upper == 1.0
        ends = (divmod(each, period) for each in (phase, phase + 10.0))
        before, after = (part * period * n + min(rest, part * period) for n, rest in ends)
        within += bounds.lower <= (after - before) / 10.0 + 0.01
    assert within >= 90


def test_nothing_is_said_without_workers_or_samples() -> None:
    """A process that was not sampled for more than a second may have done anything."""
    alone = states(*[("R", "")] * 100)
    assert wait_bounds(alone, judged(alone), 0.0, 9.9) is None
    full = states(*[("Q", "R")] * 100)
    assert wait_bounds(full, judged(full), 0.0, 9.9) is not None
    holed = [each for each in full if not 3.0 < each.seconds < 4.5]
    assert wait_bounds(holed, judged(holed), 0.0, 9.9) is None
    assert wait_bounds(full, judged(full), 0.0, 12.0) is None


def test_what_a_job_does_on_the_host() -> None:
    """Rates over the time of the totals, ratios over the moments; unknown stays unknown."""
    seen = states(("R", "RD"), ("Q", "DD"), ("Q", "TT"), ("R", ""))
    first = HostTotals(0.0, 0.0, 0.0, 0.0, 4.0)
    last = HostTotals(2.0, 3.0, 4e6, 100.0, 2.0)
    found = known(host_activity(seen, first, last, 2))
    assert (found.method, found.seconds, found.workers) == ("procfs", 2.0, 2)
    assert (found.worker_running_ratio, found.worker_blocked_ratio) == (0.25, 0.75)
    assert (found.cores, found.cores_busy) == (2.0, 1.5)
    assert found.read_size_bytes == 4e4
    assert host_activity([], first, last, 2) is None
    assert host_activity(seen, first, first, 2) is None
    none = known(host_activity(states(("R", "")), first, HostTotals(1.0), None))
    assert none.worker_running_ratio is None
    assert none.read_size_bytes is None
