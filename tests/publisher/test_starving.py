# SPDX-License-Identifier: Apache-2.0
"""Long and short waits for data, from the loop of the job to the totals of its GPU."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline_job import phase
from tests.publisher.starving import Starving

CYCLES = 10


# What the GPU is limited by.


@pytest.mark.parametrize(
    ("wait", "compute", "poll_seconds", "measured"),
    [
        (1, 0.2, 0.1, False),
        (5, 5, 1.0, True),
        (5, 5, 1.0, False),
        (60, 60, 5.0, False),
        (20, 300, 5.0, True),
        (20, 300, 5.0, False),
    ],
)
def test_waits_limit_the_gpu_by_input_for_as_long_as_they_take(
    wait: float, compute: float, poll_seconds: float, measured: bool
) -> None:
    """With CUDA events, whose result comes after the wait, and without them."""
    with Starving(poll_seconds, measured=measured) as node:
        node.computes(0.37)
        node.train([(wait, compute)] * CYCLES)
        assert node.limited["input"] == pytest.approx(node.stalled, rel=0.1)
        assert node.limited["idle"] <= 0.05 * node.stalled


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize(
    ("wait", "compute", "poll_seconds"),
    [(1, 0.2, 1.0), (1.05, 1.02, 1.0), (1.3, 2.7, 1.0), (2.03, 0.51, 1.0), (7, 6, 5.0)],
)
def test_a_wait_that_begins_or_ends_within_an_interval_counts_for_its_part(
    wait: float, compute: float, poll_seconds: float, measured: bool
) -> None:
    """One word for each whole interval would count up to half as much again."""
    with Starving(poll_seconds, measured=measured) as node:
        node.computes(0.37)
        node.train([(wait, compute)] * 30)
        node.ends()
        assert node.limited["input"] == pytest.approx(node.stalled, rel=0.03)
        observed = node.share.totals.observed_seconds["activity"]
        assert sum(node.limited.values()) == pytest.approx(observed)


def test_waits_on_a_gpu_without_counters_are_input_as_well() -> None:
    """Idle time follows from the utilization."""
    with Starving(counters=False) as node:
        node.computes(0.37)
        node.train([(15, 15)] * CYCLES)
        assert node.limited["input"] == pytest.approx(node.stalled, rel=0.1)
        assert 0.75 * node.stalled <= node.lower <= node.stalled <= node.upper


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize(("wait", "compute"), [(0.01, 15), (0.2, 2.3), (0.01, 0.5)])
def test_a_job_that_computes_on_the_cpu_does_not_wait_for_input(
    wait: float, compute: float, measured: bool
) -> None:
    """Its GPU is idle all the time, and the wait explains next to none of it."""
    with Starving(measured=measured) as node:
        node.computes(0.37)
        node.train([(wait, compute)] * CYCLES, while_computing=0.0)
        assert node.limited["input"] == 0.0
        assert node.limited["idle"] >= 0.9 * CYCLES * compute - 2


@pytest.mark.parametrize("measured", [False, True])
def test_after_a_long_wait_computing_on_the_cpu_is_idle_again(measured: bool) -> None:
    """The GPU idles in both, and the stall of a wait is known only after it."""
    with Starving(measured=measured) as node:
        node.computes(0.37)
        node.train([(15, 15)] * CYCLES, while_computing=0.0)
        assert node.limited["input"] == pytest.approx(150.0, rel=0.1)
        assert node.limited["idle"] == pytest.approx(150.0, rel=0.1)


def test_a_wait_that_the_gpu_works_through_is_no_input() -> None:
    """Prefetched work is queued for most of it."""
    with Starving(measured=True) as node:
        node.computes(0.37)
        node.train([(15, 15)] * CYCLES, while_waiting=1.0)
        assert node.stalled == 0.0
        assert node.limited["input"] == node.limited["idle"] == 0.0


@pytest.mark.parametrize("measured", [False, True])
def test_a_rare_long_wait_of_a_fast_loop_is_known_by_the_ranks_own_history(measured: bool) -> None:
    """Nobody can announce it: the last report is not a second old. The first one is lost."""
    with Starving(measured=measured) as node:
        node.computes(0.37)
        node.train(([(0.005, 0.045)] * 213 + [(10.0, 0.045)]) * 8)
        assert node.limited["input"] == pytest.approx(7 * 10.0, rel=0.15)


def test_a_rare_long_step_of_a_fast_loop_is_idle() -> None:
    """The same silence, but the job computes on the CPU."""
    with Starving() as node:
        node.computes(0.37)
        for _ in range(4):
            node.train([(0.005, 0.045)] * 213)
            node.computes(10.0, busy=0.0)
        assert node.limited["input"] == pytest.approx(0.0, abs=0.01)


# One wait.


def test_a_wait_counts_while_it_goes_on_and_ends_with_the_process() -> None:
    """After ten minutes of silence the job still waits; an ended process does not."""
    with Starving(measured=True) as node:
        waited = []

        def look(seconds: float) -> None:
            node.waits(seconds)
            waited.append((node.limited["input"], node.seen[-1].ranks))

        node.train([(1.0, 5.0)] * 2)
        node.computes(2.0)
        with phase("data"):
            look(5.0)
            look(595.0)
            node.processes.alive = False
            look(4.0)
            look(60.0)
        (early, (five,)), (late, (rank,)), (killed, _), (end, gone) = waited
        assert five.waiting_for_data
        assert five.data_wait_ratio == pytest.approx(0.5, abs=0.11)
        assert rank.waiting_for_data
        assert rank.data_wait_ratio == pytest.approx(1.0)
        assert rank.data_stall_ratio == pytest.approx(1.0)
        assert late - early == pytest.approx(595.0, abs=2)
        assert gone == ()
        assert end == killed <= late + 4.0


# The bounds.


@pytest.mark.parametrize(
    ("seconds", "poll_seconds", "least"),
    [
        (5, 1.0, 0.8),
        (15, 0.1, 0.98),
        (15, 1.0, 0.93),
        (15, 5.0, 0.7),
        (60, 1.0, 0.98),
        (60, 5.0, 0.93),
    ],
)
def test_the_bounds_of_long_waits_are_close(
    seconds: float, poll_seconds: float, least: float
) -> None:
    """At half of the time stalled, the alert on the lower bound fires."""
    with Starving(poll_seconds) as node:
        node.computes(0.37 * poll_seconds)
        node.train([(seconds, seconds)] * CYCLES)
        node.ends()
        assert least * node.stalled <= node.lower <= node.stalled <= node.upper
        assert node.upper <= 1.02 * node.stalled


DURATIONS = st.one_of(st.floats(0.2, 2.0), st.floats(2.0, 30.0), st.floats(30.0, 300.0))


@given(
    cycles=st.lists(st.tuples(DURATIONS, DURATIONS), min_size=CYCLES, max_size=CYCLES),
    poll_seconds=st.sampled_from([1.0, 5.0]),
    while_waiting=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
    while_computing=st.sampled_from([1.0, 1.0, 0.4, 0.0]),
    counters=st.booleans(),
)
@settings(max_examples=settings().max_examples // 12)
def test_the_totals_bound_the_truth(
    cycles: list[tuple[float, float]],
    poll_seconds: float,
    while_waiting: float,
    while_computing: float,
    counters: bool,
) -> None:
    """For waits and computing of any length, and any other use of the GPU."""
    # Few ticks for long cycles.
    poll_seconds = 5.0 if sum(map(sum, cycles)) > 1000 else poll_seconds
    with Starving(poll_seconds, counters=counters) as node:
        node.train(cycles, while_waiting=while_waiting, while_computing=while_computing)
        node.ends()
        assert node.lower <= node.stalled <= node.upper + 1e-6
        totals = [
            (
                sum(shown.gpus[0].shares[0].totals.data_stall_lower_seconds.values()),
                sum(shown.gpus[0].shares[0].totals.data_stall_upper_seconds.values()),
            )
            for shown in node.seen
        ]
        assert totals == sorted(totals)
        assert all(lower <= upper for lower, upper in totals)
