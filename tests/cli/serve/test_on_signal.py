# SPDX-License-Identifier: Apache-2.0
"""What signals ask for is done outside their handlers, one at a time, and ends nothing."""

from __future__ import annotations

import logging
import queue
import signal
import sys
import threading

import pytest

from exporter.cli.config import Reloaded, Settings
from exporter.cli.serve.on_signal import PAUSE_SECONDS, Lender, Reloader
from exporter.errors import ConfigError

SECONDS = 10.0


class Rig:
    """A reloader whose readings a test lets through one by one."""

    def __init__(self) -> None:
        self.answers: queue.Queue[Reloaded | BaseException] = queue.Queue()
        self.applied: queue.Queue[Settings] = queue.Queue()
        self.pauses: queue.Queue[float] = queue.Queue()
        self.go_on = threading.Semaphore(0)
        self.readings = 0
        self.noted: list[bool] = []
        self.reloader = Reloader(self._reload, self.applied.put, self.noted.append, self._pause)

    def _reload(self) -> Reloaded:
        self.readings += 1
        answer = self.answers.get(timeout=SECONDS)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _pause(self, seconds: float) -> None:
        self.pauses.put(seconds)
        self.go_on.acquire(timeout=SECONDS)

    def ask(self, answer: Reloaded | BaseException) -> None:
        """Ask for a reading that ends so, and wait until it has."""
        self.answers.put(answer)
        self.reloader.request()
        assert self.pauses.get(timeout=SECONDS) == PAUSE_SECONDS
        self.go_on.release()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_many_requests_are_one_reading_and_one_more(rig: Rig) -> None:
    """What is asked for while one is under way is read once afterwards, in the same thread."""
    before = set(threading.enumerate())
    rig.reloader.start()
    for _ in range(1000):
        rig.reloader.request()
    rig.answers.put(Reloaded(Settings(process_max=1), ()))
    assert rig.applied.get(timeout=SECONDS).process_max == 1
    rig.pauses.get(timeout=SECONDS)
    for _ in range(1000):
        rig.reloader.request()
    assert len(set(threading.enumerate()) - before) == 1
    rig.answers.put(Reloaded(Settings(process_max=2), ()))
    rig.go_on.release()
    assert rig.applied.get(timeout=SECONDS).process_max == 2
    rig.pauses.get(timeout=SECONDS)
    rig.go_on.release()
    assert rig.readings <= 3
    rig.ask(Reloaded(Settings(process_max=3), ()))


@pytest.mark.parametrize(
    "error",
    [ConfigError("ops.yaml:1: bad"), SystemExit(3), MemoryError(), ZeroDivisionError()],
    ids=lambda error: type(error).__name__,
)
def test_nothing_ends_it(error: BaseException, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a reading raises, it is one line, and the next is heeded."""
    rig.reloader.start()
    rig.ask(error)
    assert [record.levelno for record in caplog.records] in ([logging.WARNING], [logging.ERROR])
    assert "configuration not reloaded, the old one stays" in caplog.text
    rig.ask(Reloaded(Settings(process_max=5), ()))
    assert rig.applied.get(timeout=SECONDS).process_max == 5
    assert rig.noted == [False, True]


def test_a_request_may_interrupt_a_request(rig: Rig) -> None:
    """A signal comes between any two steps of the handler of the one before."""
    old = signal.signal(signal.SIGUSR1, lambda _number, _frame: rig.reloader.request())
    depth = 0

    def interrupt(_frame: object, _event: str, _argument: object) -> object:
        nonlocal depth
        if depth < 20:
            depth += 1
            signal.raise_signal(signal.SIGUSR1)
        return interrupt

    traced = sys.gettrace()
    try:
        sys.settrace(interrupt)  # type: ignore[arg-type]
        rig.reloader.request()
    finally:
        sys.settrace(traced)
        signal.signal(signal.SIGUSR1, old)
    assert depth
    rig.reloader.start()
    rig.ask(Reloaded(Settings(), ()))


# Lending


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
    """The others are handed over and taken back all the same."""
    counters = [Counters(problem), Counters()]
    lender = Lender(counters)
    lender.start()

    lender.pause()
    assert counters[0].asked.get(timeout=SECONDS) == "pause"
    lender.resume()
    assert counters[0].asked.get(timeout=SECONDS) == "resume"
    if isinstance(problem, Exception):
        assert counters[1].asked.get(timeout=SECONDS) == "pause"
