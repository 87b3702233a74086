# SPDX-License-Identifier: Apache-2.0
"""Requests to read the configuration again are heeded one at a time, and end nothing."""

from __future__ import annotations

import logging
import queue
import signal
import sys
import threading

import pytest

from exporter.cli.config import Reloaded, Settings
from exporter.cli.serve.reload import PAUSE_SECONDS, Reloader
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
        self.reloader = Reloader(self._reload, self.applied.put, self._pause)

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
    [
        ConfigError("ops.yaml:1: bad"),
        SystemExit(3),
        MemoryError(),
        RecursionError(),
        KeyboardInterrupt(),
        ZeroDivisionError(),
    ],
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


def test_a_log_that_fails_does_not_end_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory, a line cannot be written either."""
    rig.reloader.start()

    def fail(*_words: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("exporter.cli.serve.reload.log.exception", fail)
        rig.answers.put(MemoryError())
        rig.reloader.request()
        rig.answers.put(Reloaded(Settings(process_max=6), ()))
        while rig.applied.empty():
            rig.reloader.request()
    rig.go_on.release()


def test_no_thread_is_no_reason_to_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At a limit of threads the daemon serves what it has."""

    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    rig.reloader.start()
    rig.reloader.request()
    assert caplog.messages == ["SIGHUP is not heeded: can't start new thread"]


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
