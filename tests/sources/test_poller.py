# SPDX-License-Identifier: Apache-2.0
"""A source that is asked every few seconds: what it says, and how it is doing."""

from __future__ import annotations

import logging
import threading

import pytest

from exporter.model.snapshot import SourceState
from exporter.model.workload import Allocation, DeviceName, Workload, WorkloadReport
from exporter.sources.poller import INTERVAL_SECONDS, Busy, PolledSource, Unreadable
from tests.clocks import ManualClock
from tests.waiting import wait_until


def _report(pod: str) -> WorkloadReport:
    workload = Workload("kubernetes", "team-a", pod, "main")
    return WorkloadReport((Allocation(DeviceName(index=0), workload),), allocates=True)


Outcome = WorkloadReport | Exception | None
Source = PolledSource[WorkloadReport]


class Asked:
    """A source whose answers a test sets; each question takes 2 s."""

    def __init__(self, answer: Outcome) -> None:
        self.answer = answer
        self.clock = ManualClock()
        self.source = PolledSource("kubernetes", self._read, self.clock)

    def _read(self) -> WorkloadReport | None:
        self.clock.advance(2)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def ask(self, answer: Outcome) -> Source:
        self.answer = answer
        self.source.read_once()
        return self.source


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "exporter.sources.poller")


def test_a_source_that_is_not_there_has_no_state(caplog: pytest.LogCaptureFixture) -> None:
    """And is looked for without a word."""
    source = Asked(None).ask(None)

    assert (source.report(), source.state, caplog.messages) == (None, None, [])


def test_one_that_was_never_there_is_looked_for_less_and_less_often() -> None:
    """Once a minute in the end; as often as any other once it is there."""
    asked = Asked(None)
    assert [asked.ask(None).wait_seconds for _ in range(4)] == [20, 40, 60, 60]
    assert asked.ask(_report("one")).wait_seconds == INTERVAL_SECONDS
    assert asked.ask(None).wait_seconds == INTERVAL_SECONDS  # gone, which is a fault


def test_what_it_says_is_kept_and_ages() -> None:
    asked = Asked(None)
    source = asked.ask(_report("one"))
    assert source.report() == _report("one")
    assert source.state == SourceState(True, 2.0, 0, 0.0)

    asked.clock.advance(7)

    assert source.state == SourceState(True, 2.0, 0, 7.0)
    assert source.wait_seconds == INTERVAL_SECONDS
    first = source.report()
    assert asked.ask(_report("one")).report() is first  # nothing is worked out anew
    assert source.state == SourceState(True, 2.0, 0, 0.0)
    assert asked.ask(_report("two")).report() == _report("two")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Unreadable("the kubelet does not answer"), "the kubelet does not answer"),
        (ValueError("a fault\nof ours"), "ValueError: a fault of ours"),
        (KeyError(), "KeyError: KeyError"),
        (None, "it is gone"),
        (Unreadable("x" * 1000), "x" * 300 + "…"),
    ],
)
def test_the_last_word_stays_while_it_cannot_be_read(
    caplog: pytest.LogCaptureFixture, answer: Outcome, why: str
) -> None:
    """One line when that begins, one when it ends, however often it is asked in between."""
    asked = Asked(None)
    asked.ask(_report("one"))
    for _ in range(3):
        asked.clock.advance(8)
        asked.ask(answer)

    assert asked.source.report() == _report("one")
    assert asked.source.state == SourceState(False, 2.0, 3, 30.0)
    assert caplog.messages == [f"source kubernetes: {why}; its last word stays"]
    assert asked.ask(_report("two")).state == SourceState(True, 2.0, 3, 0.0)
    assert caplog.messages[1:] == ["source kubernetes can be read again"]


def test_one_that_never_said_a_word_has_nothing_to_keep(caplog: pytest.LogCaptureFixture) -> None:
    """There, but unreadable from the start: no age, and no promise in the log."""
    source = Asked(None).ask(Unreadable("permission denied"))

    assert (source.report(), source.state) == (None, SourceState(False, 2.0, 1, None))
    assert caplog.messages == ["source kubernetes: permission denied"]


def test_one_that_is_asked_too_often_is_asked_less_often() -> None:
    """Twice and four times the interval, not more; then as before."""
    asked = Asked(None)
    busy = Busy("rate limit")
    answers: list[Outcome] = [_report("one"), busy, busy, busy, _report("one")]
    waits = [asked.ask(answer).wait_seconds for answer in answers]
    assert waits == [10, 20, 40, 40, 10]

    assert asked.ask(Busy("rate limit")).wait_seconds == 20
    assert asked.ask(Unreadable("gone")).wait_seconds == 10


def test_it_is_asked_over_and_over_in_a_thread() -> None:
    """Also after a fault; once stopped, not any more."""
    answers: list[Outcome] = [_report("one"), RuntimeError("once"), _report("two")]
    asked: list[int] = []

    def read() -> WorkloadReport | None:
        answer = answers[min(len(asked), len(answers) - 1)]
        asked.append(1)
        if isinstance(answer, Exception):
            raise answer
        return answer

    source = PolledSource("slurm", read, ManualClock(), interval_seconds=0.001)
    source.start()
    wait_until(lambda: source.report() == _report("two"), 10, "the third answer")
    source.stop()
    assert source.state is not None
    assert source.state.failures_total == 1


def test_one_that_hangs_is_not_waited_for() -> None:
    """Its state can be read, and it can be stopped."""
    hangs, go_on = threading.Event(), threading.Event()

    def read() -> WorkloadReport | None:
        hangs.set()
        go_on.wait(30)
        return None

    source = PolledSource("slurm", read, ManualClock())
    source.start()
    assert hangs.wait(10)
    assert source.state is None
    source.stop()
    go_on.set()
