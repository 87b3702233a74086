# SPDX-License-Identifier: Apache-2.0
"""What a job says before it is silent: whether it waits, or is in a phase, or computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from roofline_job import phase, step, watch
from roofline_job.process import PROCESS
from tests.training.conftest import Clock
from tests.training.listener import Listener


class Job:
    """A job on a clock by hand; each word is when it was said, its phase and the wait so far."""

    def __init__(self, clock: Clock, listener: Listener) -> None:
        self.clock = clock
        self._listener = listener
        self._heard: list[dict[str, Any]] = []

    def batches(self, waits: Iterable[float]) -> Iterator[float]:
        for wait in waits:
            self.clock.wait(wait)
            yield wait

    def train(self, *cycles: tuple[float, float]) -> None:
        """Wait for a batch and compute, so many seconds each."""
        computing = iter([seconds for _, seconds in cycles])
        for _ in watch(self.batches([seconds for seconds, _ in cycles]), job="job"):
            self.clock.wait(next(computing))
            # A socket keeps 10 datagrams where net.unix.max_dgram_qlen is the kernel's default.
            self._heard += self._listener.reports()

    def words(self) -> list[tuple[str | None, float]]:
        """Return the phase that each report names, with the wait for data that it counts."""
        found = [*self._heard, *self._listener.reports()]
        self._heard.clear()
        return [(said.get("in"), said["phase_seconds"].get("data", 0.0)) for said in found]


@pytest.fixture
def job(clock: Clock, listener: Listener) -> Job:
    return Job(clock, listener)


def test_a_long_wait_is_announced_and_its_end_is_reported(job: Job) -> None:
    """The first one too; the last next() finds the end of the data."""
    job.train((15, 15), (20, 15))
    assert job.words() == [
        *(("data", 0.0), (None, 15.0)),
        *(("data", 15.0), (None, 35.0)),
        *(("data", 35.0), (None, 35.0)),
    ]


def test_computing_is_never_taken_for_waiting(job: Job) -> None:
    """A short wait after long computing is announced, and so is that it is over."""
    job.train((0.01, 15), (0.01, 15))
    assert [phase for phase, _ in job.words()] == ["data", None] * 3


def test_after_a_long_wait_the_next_is_announced_at_once(job: Job) -> None:
    """However new the last report is; a short one ends that."""
    job.train((3, 0.2), (3, 0.2), (0.2, 0.2), (0.2, 0.2), (3, 0))
    assert job.words() == [
        *(("data", 0.0), (None, 3.0)),
        *(("data", 3.0), (None, 6.0)),
        *(("data", 6.0), (None, 6.2)),
        (None, pytest.approx(9.4)),
        *(("data", pytest.approx(9.4)), (None, pytest.approx(9.4))),
    ]


@pytest.mark.parametrize("step_seconds", [0.005, 0.05, 0.1])
def test_a_loop_with_short_steps_reports_once_a_second(job: Job, step_seconds: float) -> None:
    """As often as if nothing were announced, after the first batch."""
    steps = round(20 / step_seconds)
    job.train(*[(0.2 * step_seconds, 0.8 * step_seconds)] * steps)
    words = job.words()
    assert words[0] == ("data", 0.0)
    assert {phase for phase, _ in words[1:]} == {None}
    assert 19 <= len(words[1:]) <= 21


def test_a_phase_is_announced_like_a_wait(job: Job, clock: Clock) -> None:
    """And what is around it when it has ended."""
    for _ in watch(job.batches([0.01]), job="job"):
        clock.wait(2)
        with phase("eval"):
            clock.wait(2)
            with phase("data"):
                clock.wait(3)
            clock.wait(0.1)
        clock.wait(0.5)
        with phase("tokenize"):
            clock.wait(4)
    said = [phase for phase, _ in job.words()]
    assert said == ["data", None, "eval", "data", "eval", None, None, "data", None]


def test_a_loop_without_an_iterator_announces_its_phases(job: Job, clock: Clock) -> None:
    """From its first step on."""
    for _ in range(2):
        with phase("data"):
            clock.wait(5)
        clock.wait(5)
        step()
    assert job.words() == [(None, 5.0), ("data", 5.0), (None, 10.0), (None, 10.0)]


def test_an_evaluation_before_training_announces_nothing(job: Job, clock: Clock) -> None:
    """It is not known yet whether this process trains."""
    with phase("eval"):
        for _ in watch(job.batches([5]), job="job"):
            clock.wait(5)
    assert job.words() == []


def test_a_wait_that_was_cut_off_is_over(job: Job, clock: Clock) -> None:
    """An exception out of next() ends it like a batch."""

    def broken() -> Iterator[int]:
        clock.wait(2)
        yield 1
        clock.wait(2)
        raise OSError

    batches = iter(watch(broken(), job="job"))
    next(batches)
    clock.wait(2)
    with pytest.raises(OSError):
        next(batches)
    assert job.words()[-1] == (None, 4.0)


def test_the_last_word_of_a_job_names_no_phase(job: Job, clock: Clock) -> None:
    """Whatever is under way when it ends."""
    for _ in watch(job.batches([1]), job="job"):
        with phase("checkpoint"):
            clock.wait(2)
            PROCESS.flush()
    assert job.words()[-1][0] is None
