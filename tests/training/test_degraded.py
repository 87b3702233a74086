# SPDX-License-Identifier: Apache-2.0
"""What fails inside the client is its own; what a signal handler of the job raises is not."""

from __future__ import annotations

import functools
import gc
import io
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from exporter.sources.training.decode import decode
from roofline_job import degraded, loops, phase, process, reporter, step, torch_hooks, watch
from roofline_job.degraded import REASONS, WATCH, degrade
from roofline_job.thread_accounts import ThreadAccount
from tests.training.conftest import PARTS, Clock
from tests.training.listener import Listener
from tests.training.measured import is_at_rest, measured

pytestmark = pytest.mark.usefixtures("client")


def test_every_part_has_a_reason() -> None:
    """And every reason has a part or a place where it is found."""
    found = {part.reason for part in PARTS} | {"helper_thread"}

    assert found == set(REASONS)


def test_the_next_report_names_the_reasons(clock: Clock, listener: Listener) -> None:
    """All of them, and what was found first."""
    iterator = iter(watch(range(100), job="job"))
    next(iterator)
    degrade("autocast", "no autocast")
    degrade("optimizers", "no\noptimizers")
    clock.wait(1)
    next(iterator)
    _, before, *_, after = (decode(datagram) for datagram in listener.datagrams())

    assert (before.degraded, before.errors) == ((), 0)
    assert sorted(after.degraded) == ["autocast", "optimizers"]
    assert (after.errors, after.error) == (2, "no autocast")


def test_torchdata_without_its_loader() -> None:
    """Loops are measured as before, without what only the loader knows."""
    torch_hooks.hook_stateful_loaders(ModuleType("stateful"))

    assert degraded.FOUND == {"loader_details": "stateful has no StatefulDataLoader"}


@pytest.mark.parametrize("stderr", [None, io.StringIO(), SimpleNamespace(write=lambda _: 1 / 0)])
def test_a_job_without_an_output_is_told_nothing(
    stderr: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have closed it, or put something else in its place."""
    if isinstance(stderr, io.StringIO):
        stderr.close()
    monkeypatch.setattr(sys, "stderr", stderr)
    degrade("autocast", "gone")

    assert degraded.FOUND == {"autocast": "gone"}


def test_an_error_that_cannot_be_printed_harms_nobody() -> None:
    """It may be of a class of the job's own."""

    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("never")

    def samples(_: object) -> float:
        raise Silent

    assert list(watch([1, 2], samples_per_batch=samples)) == [1, 2]
    assert len(degraded.FOUND) == 1


def test_a_child_says_it_only_when_it_reports(
    clock: Clock,
    unheard: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Most children of multiprocessing only load data, and their parent has said it."""
    child = SimpleNamespace(parent_process=lambda: SimpleNamespace(pid=1))
    monkeypatch.setitem(sys.modules, "multiprocessing.process", child)
    degrade("autocast", "gone")
    assert capsys.readouterr().err == ""

    list(watch([1]))
    assert capsys.readouterr().err == "roofline_job: the precision is not known (gone)\n"


# Signals


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


READINGS: dict[Callable[[], None], int] = {_loop: 5, _phase: 2, step: 1}


@pytest.mark.usefixtures("handled", "unheard")
@pytest.mark.parametrize("job", [_loop, _phase, step])
@pytest.mark.parametrize("reading", [1, 2, 3, 4, 5])
def test_what_a_signal_handler_raises_reaches_the_job(
    job: Callable[[], None], reading: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the signal arrives: a job that bounds its time by an alarm is stopped by it."""
    clock = Interrupting(min(reading, READINGS[job]))
    monkeypatch.setattr(process, "ThreadAccount", functools.partial(ThreadAccount, clock=clock))

    with pytest.raises(TimeoutError, match="too late"):
        job()
    assert is_at_rest()
    assert measured().wall_ns < 100
    assert not degraded.FOUND
    assert all(part.on for part in PARTS)


@pytest.mark.usefixtures("handled")
def test_one_that_looks_like_a_failure_of_the_socket_does_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TimeoutError is an OSError, as is what the socket raises where nobody listens."""

    class Endpoint:
        def __init__(self, *_: int) -> None:
            self.close = lambda: None
            self.settimeout = self.connect = lambda _: None

        def send(self, _: bytes) -> None:
            signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(reporter, "socket", Endpoint)

    with pytest.raises(TimeoutError, match="too late"):
        reporter.deliver(b"{}")


@pytest.mark.usefixtures("handled")
def test_the_same_error_from_elsewhere_is_a_failure() -> None:
    """What counts is who raised it."""
    assert list(watch([1], samples_per_batch=lambda _: 1 / 0)) == [1]
    assert degraded.FOUND == {"stated": "ZeroDivisionError: division by zero"}


@contextmanager
def _handler_in_answered() -> Iterator[None]:
    """Let a handler raise as soon as what accounts a batch is entered, and only once."""

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            sys.settrace(None)
            function()
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        return line if (code.co_name, code.co_filename) == ("end_wait", loops.__file__) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("again", ["the iterator", "another one"])
def test_what_a_handler_cut_off_is_made_up_for(clock: Clock, unheard: None, again: str) -> None:
    """The loop goes on, or another one once the job has let go of the error: all is counted."""
    data = watch(range(9))
    iterator = iter(data)
    next(iterator)
    with pytest.raises(TimeoutError), _handler_in_answered():
        next(iterator)
    if again == "another one":
        iterator = iter(data)
    next(iterator)
    next(iterator)

    assert is_at_rest()
    assert measured().batches == 3
    assert WATCH.on


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
            WATCH.fail(error)

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
