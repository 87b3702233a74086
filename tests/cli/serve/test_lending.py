# SPDX-License-Identifier: Apache-2.0
"""Requests for the counters reach what holds them, outside the signal handler."""

from __future__ import annotations

import queue

import pytest

from exporter.cli.serve.lending import Lender

SECONDS = 10.0


class Counters:
    """Notes what it is asked for."""

    def __init__(self, problem: BaseException | None = None) -> None:
        self.asked: queue.Queue[str] = queue.Queue()
        self.problem = problem

    def pause(self) -> None:
        self.asked.put("pause")
        if self.problem is not None:
            raise self.problem

    def resume(self) -> None:
        self.asked.put("resume")


def test_all_counters_are_handed_over_and_back() -> None:
    counters = [Counters(), Counters()]
    lender = Lender(counters)
    lender.start()

    lender.pause()
    assert [each.asked.get(timeout=SECONDS) for each in counters] == ["pause", "pause"]
    lender.resume()
    assert [each.asked.get(timeout=SECONDS) for each in counters] == ["resume", "resume"]


def test_the_last_word_holds() -> None:
    """A handler may interrupt another one."""
    counters = Counters()
    lender = Lender([counters])
    for _ in range(100):
        lender.pause()
        lender.resume()
    lender.start()

    assert counters.asked.get(timeout=SECONDS) == "resume"
    assert counters.asked.empty()


@pytest.mark.parametrize("problem", [RuntimeError("no"), SystemExit()])
def test_one_that_fails_does_not_end_it(problem: BaseException) -> None:
    counters = [Counters(problem), Counters()]
    lender = Lender(counters)
    lender.start()

    lender.pause()
    assert counters[0].asked.get(timeout=SECONDS) == "pause"
    lender.resume()
    assert counters[0].asked.get(timeout=SECONDS) == "resume"
    if isinstance(problem, Exception):
        assert counters[1].asked.get(timeout=SECONDS) == "pause"
