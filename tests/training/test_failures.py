# SPDX-License-Identifier: Apache-2.0
"""What fails inside the client is its own; what a signal handler of the job raises is not."""

from __future__ import annotations

import functools
import gc
import logging
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from roofline_job import lanes, loops, phase, reporter, step, torch_hooks, watch
from roofline_job.failures import FAILURES
from roofline_job.lanes import Lane

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


@contextmanager
def _handler_in_end() -> Iterator[None]:
    """Let a handler raise as soon as what accounts a batch is entered, and only once."""

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            sys.settrace(None)
            function()
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        return line if (code.co_name, code.co_filename) == ("end", loops.__file__) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("again", ["same iterator", "new iterator"])
def test_what_a_handler_cut_off_is_over_though_the_job_keeps_the_error(again: str) -> None:
    """The loop goes on: its later batches are not taken for those of a loop inside it."""
    data = watch(range(9))
    iterator = iter(data)
    errors = []
    next(iterator)
    with _handler_in_end():
        try:
            next(iterator)
        except TimeoutError as error:
            errors.append(error)
    if again == "new iterator":
        iterator = iter(data)
    next(iterator)
    lane = lanes.current()
    assert lane is not None
    assert (lane.depth, lane.asking, lane.counts.batches()) == (0, None, 2)
    errors.clear()
    assert (lane.depth, lane.asking) == (0, None)
    assert lane._loops
    next(iterator)
    assert lane.counts.batches() == 3
    assert FAILURES.count == 0


def test_an_iterator_that_is_let_go_is_gone() -> None:
    """Though the loop is told when that is: nothing goes round in a circle."""

    class Data:
        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            return 1

    data: Any = Data()
    gone, iterator = weakref.ref(data), iter(watch(data))
    gc.disable()
    try:
        next(iterator)
        del data, iterator
        assert gone() is None
    finally:
        gc.enable()


def test_what_is_passed_on_is_held_by_nobody() -> None:
    """The job's frames go as soon as the job lets go of its error."""

    class Local:
        pass

    def job(gone: list[Any]) -> None:
        local = Local()
        gone.append(weakref.ref(local))
        try:
            function()
        except TimeoutError as error:
            FAILURES.add(error)

    gone: list[Any] = []
    before = signal.signal(signal.SIGUSR1, function)
    gc.disable()
    try:
        with pytest.raises(TimeoutError) as caught:
            job(gone)
        del caught
        assert gone[0]() is None
    finally:
        gc.enable()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", [loops.Turn, torch_hooks._Turn])
def test_what_a_handler_cut_off_while_it_was_made_is_no_failure(kind: type) -> None:
    """An object is finalised even if it never came to be."""
    object.__new__(kind)
    assert FAILURES.count == 0
