# SPDX-License-Identifier: Apache-2.0
"""What fails inside the client is its own; what a signal handler of the job raises is not."""

from __future__ import annotations

import functools
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from exporter.training import lanes, loops, phase, reporter, step, torch_hooks, watch
from exporter.training.failures import FAILURES
from exporter.training.lanes import Lane

pytestmark = pytest.mark.usefixtures("client")


class Interrupting:
    """A clock in which a signal arrives when it is read for the given time."""

    def __init__(self, reading: int) -> None:
        self.left = reading
        self.now_ns = 1_000

    def __call__(self) -> int:
        self.left -= 1
        self.now_ns += 1
        if not self.left:
            signal.raise_signal(signal.SIGUSR1)
        return self.now_ns


class Deadline:
    """Handlers of every kind that raise."""

    def method(self, *_: Any) -> None:
        raise TimeoutError("too late")

    def __call__(self, *_: Any) -> None:
        self.method()


def function(*_: Any) -> None:
    raise TimeoutError("too late")


@pytest.fixture(params=[function, Deadline().method, Deadline(), functools.partial(function, 1)])
def handled(request: pytest.FixtureRequest) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, request.param)
    yield
    signal.signal(signal.SIGUSR1, before)


def _loop() -> None:
    for _ in watch(range(3)):
        pass


def _phase() -> None:
    with phase("logging"):
        pass


READINGS: dict[Callable[[], None], int] = {_loop: 3, _phase: 2, step: 1}


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("job", [_loop, _phase, step])
@pytest.mark.parametrize("reading", [1, 2, 3])
def test_what_a_signal_handler_raises_reaches_the_job(
    job: Callable[[], None], reading: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the signal arrives: a job that bounds its time by an alarm is stopped by it."""
    clock, real = Interrupting(min(reading, READINGS[job])), Lane
    monkeypatch.setattr(lanes, "Lane", lambda run, **kwargs: real(run, clock, **kwargs))
    monkeypatch.setattr(reporter, "deliver", lambda _: True)

    with pytest.raises(TimeoutError, match="too late"):
        job()
    lane = lanes.current()
    assert lane is not None
    totals = lane.run.totals()

    assert FAILURES.first == ""
    assert (lane.depth, lane.asking) == (0, None)
    assert sum(totals.phase_ns.values()) <= totals.wall_ns < 100


@pytest.mark.usefixtures("handled")
def test_one_that_looks_like_a_failure_of_the_socket_does_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TimeoutError is an OSError, as is what the socket raises where nobody listens."""

    class Endpoint:
        def __init__(self, *_: int) -> None:
            self.close = lambda: None

        def sendto(self, *_: Any) -> None:
            signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(reporter, "socket", Endpoint)

    with pytest.raises(TimeoutError, match="too late"):
        reporter.deliver(b"{}")


@pytest.mark.usefixtures("handled")
def test_the_same_error_from_elsewhere_is_a_failure() -> None:
    """What counts is who raised it."""
    assert list(watch([1], samples_per_batch=lambda _: 1 / 0)) == [1]
    assert FAILURES.first == "ZeroDivisionError: division by zero"


def test_a_failure_that_cannot_be_logged_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may be at the end of its stack, or have logging of its own that raises."""

    def refuse(*_: Any) -> None:
        raise RecursionError

    with monkeypatch.context() as patch:
        patch.setattr(logging, "getLogger", refuse)
        assert list(watch([1, 2], samples_per_batch=lambda _: 1 / 0)) == [1, 2]
    assert FAILURES.count == 2


def test_a_job_without_signals_fails_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of the standard library may not be there, or be another one."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "signal", object())
        assert list(watch([1], samples_per_batch=lambda _: 1 / 0)) == [1]
    assert FAILURES.count == 1


@pytest.mark.parametrize("kind", [loops.Turn, torch_hooks._Turn])
def test_what_a_handler_cut_off_while_it_was_made_is_no_failure(kind: type) -> None:
    """An object is finalised even if it never came to be."""
    object.__new__(kind)
    assert FAILURES.count == 0
