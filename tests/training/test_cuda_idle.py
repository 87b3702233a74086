# SPDX-License-Identifier: Apache-2.0
"""S is the idle time of the computing stream, exactly; and no CUDA call is made that may not be."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline_job import degraded
from roofline_job.captures import CAPTURES
from roofline_job.cuda_idle import FREE_EVENTS, MEASURED_PHASES, PAIRS, IdleMeter
from tests.training.conftest import begin_anew
from tests.training.scripted_cuda import MS, ScriptedGpu, Stream

forks = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
"""Python warns of a fork beside threads, which a parallel test run has."""


each_call = pytest.mark.parametrize("call", ["Event.record", "Event.query", "Event.elapsed_time"])


@contextmanager
def _scripted(**options: Any) -> Iterator[ScriptedGpu]:
    """A stand-in as the process's torch, and none of its events or captures left afterwards."""
    real = sys.modules.get("torch")
    gpu = ScriptedGpu(**options)
    sys.modules["torch"] = gpu.torch
    begin_anew()
    try:
        yield gpu
    finally:
        begin_anew()
        del sys.modules["torch"]
        if real is not None:
            sys.modules["torch"] = real


def _meter() -> IdleMeter:
    """Return a meter of a loop that has begun."""
    meter = IdleMeter()
    meter.find_cuda()
    return meter


@pytest.fixture(name="gpu")
def _gpu() -> Iterator[ScriptedGpu]:
    with _scripted() as gpu:
        yield gpu


def _wait(gpu: ScriptedGpu, meter: IdleMeter, milliseconds: float, phase: str = "data") -> None:
    """Be in a phase for so long."""
    pair = meter.start()
    gpu.host(milliseconds)
    if pair is not None:
        meter.stop(pair, phase, round(milliseconds * MS))


def _idle_ms(gpu: ScriptedGpu, meter: IdleMeter, phase: str = "data") -> float:
    """What was measured once the GPU has passed everything."""
    gpu.host(1e6)
    meter.collect()
    return meter.idle_ns[phase] / MS


def test_nothing_is_known_before_a_pair_is_resolved(gpu: ScriptedGpu) -> None:
    """A pair that the GPU has not passed is no measurement of 0."""
    meter = _meter()
    gpu.launch(50)
    _wait(gpu, meter, 10)
    meter.collect()
    assert not meter.measuring
    assert _idle_ms(gpu, meter) == 0
    assert meter.measuring
    assert set(meter.idle_ns) == set(MEASURED_PHASES)


def test_the_next_start_resolves_what_is_finished(gpu: ScriptedGpu) -> None:
    """A loop that never collects resolves its pairs as it goes, and needs only a few events."""
    meter = _meter()
    for _ in range(1000):
        _wait(gpu, meter, 10)
        gpu.launch(4)
        gpu.host(1)
    # 3 ms of each 4 ms of work are left when the next wait begins; the first wait had none.
    assert meter.idle_ns["data"] == (10 + 998 * 7) * MS
    assert gpu.events <= 6


def test_a_step_on_a_side_stream_before_a_capture_was_warm_up(gpu: ScriptedGpu) -> None:
    """Graphs are warmed up on a side stream, captured, and replayed on the current one."""
    meter = _meter()
    _wait(gpu, meter, 1)
    with gpu.on(gpu.new_stream()):
        meter.remember_stream()
    with gpu.torch.cuda.graph(gpu.torch.cuda.CUDAGraph()):
        meter.remember_stream()
    before = _idle_ms(gpu, meter)
    gpu.launch(30)
    _wait(gpu, meter, 40)
    assert _idle_ms(gpu, meter) - before == 10


def test_a_stream_that_its_owner_destroyed_is_not_used(gpu: ScriptedGpu) -> None:
    """Another library's stream is only recorded on while it is the current one."""
    external = gpu.external_stream()
    meter = _meter()
    _wait(gpu, meter, 1)
    before = _idle_ms(gpu, meter)
    with gpu.on(external):
        meter.remember_stream()
        gpu.launch(5)
        _wait(gpu, meter, 20)
    external.destroyed = True
    assert meter.start() is None
    assert _idle_ms(gpu, meter) - before == 15


def test_overlapping_phases_are_counted_at_most_once(gpu: ScriptedGpu) -> None:
    """Phases that end in the wrong order: that which began last counts."""
    meter = _meter()
    first, second = meter.start(), meter.start()
    assert first is not None
    assert second is not None
    gpu.host(5)
    meter.stop(first, "logging", 5 * MS)
    meter.stop(second, "checkpoint", 5 * MS)
    assert _idle_ms(gpu, meter, "logging") == 0
    assert _idle_ms(gpu, meter, "checkpoint") == 5
    _wait(gpu, meter, 5)
    assert _idle_ms(gpu, meter) == 5


def test_no_context_is_created_on_a_gpu_that_the_job_does_not_use() -> None:
    """CUDA is initialised but the rank has not chosen its GPU: nothing is recorded on GPU 0."""
    with _scripted(initialized=False) as gpu:
        gpu.initialized = True
        meter = _meter()
        _wait(gpu, meter, 10)
        assert not gpu.contexts
        assert "Event.record" not in gpu.calls
        gpu.device = 3
        gpu.contexts.add(3)
        _wait(gpu, meter, 10)
        assert _idle_ms(gpu, meter) == 10
        assert gpu.contexts == {3}


def test_never_more_than_the_host_waited(gpu: ScriptedGpu) -> None:
    """Events are passed a little after they are recorded; S is cut to W."""
    meter = _meter()
    pair = meter.start()
    gpu.host(5.004)
    assert pair is not None
    meter.stop(pair, "data", 5 * MS)
    assert _idle_ms(gpu, meter) == 5


def test_a_half_imported_torch_is_looked_at_later(gpu: ScriptedGpu) -> None:
    """While ``import torch`` runs its module lacks names: that alone ends nothing."""
    cuda = gpu.torch.cuda
    del gpu.torch.cuda
    meter = _meter()
    assert meter.start() is None
    gpu.torch.cuda = cuda
    meter.find_cuda()
    _wait(gpu, meter, 10)
    assert not degraded.FOUND
    assert _idle_ms(gpu, meter) == 10


def test_what_is_only_called_torch_is_not_asked(gpu: ScriptedGpu) -> None:
    """Something of the job's under that name sees no call."""

    class Refuses:
        def __getattr__(self, name: str) -> object:
            raise ImportError(name)

    sys.modules["torch"] = Refuses()  # type: ignore[assignment]
    meter = _meter()
    _wait(gpu, meter, 10)
    assert meter.done(1.0) is None
    assert not degraded.FOUND


@each_call
def test_no_capture_begins_between_check_and_call(gpu: ScriptedGpu, call: str) -> None:
    """The other thread asks for its capture in the middle of our call, and gets it afterwards."""
    meter = _meter()
    _wait(gpu, meter, 10)
    asked, began, end = threading.Event(), threading.Event(), threading.Event()
    lock = CAPTURES.lock

    class Asking:
        """The lock, which says whether the other thread found it taken."""

        def __enter__(self) -> None:
            if threading.current_thread() is other:
                if lock.acquire(blocking=False):
                    return
                asked.set()
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    def capture() -> None:
        with gpu.torch.cuda.graph(gpu.torch.cuda.CUDAGraph()):
            began.set()
            end.wait(10)

    def ask() -> None:
        gpu.during.clear()
        other.start()
        asked.wait(10)

    other = threading.Thread(target=capture)
    CAPTURES.lock = Asking()  # type: ignore[assignment]
    gpu.during[call] = ask
    _wait(gpu, meter, 10)
    assert asked.is_set(), "nothing kept the capture from beginning"
    assert began.wait(10)
    assert meter.start() is None
    end.set()
    other.join()
    assert gpu.violations == []


def test_a_capture_that_nobody_announced(gpu: ScriptedGpu) -> None:
    """A library that captures the current stream through CUDA itself is noticed by asking."""
    meter = _meter()
    side = gpu.new_stream()
    with gpu.on(side):
        gpu.capturing[side] = object()
        _wait(gpu, meter, 10)
        meter.collect()
        del gpu.capturing[side]
    assert gpu.violations == []


def test_only_its_own_thread(gpu: ScriptedGpu) -> None:
    """Another thread neither starts, stops, collects nor reports a stream, nor piles up pairs."""
    meter = _meter()
    _wait(gpu, meter, 10)
    held = meter.start()
    calls = list(gpu.calls)

    def meddle() -> None:
        for _ in range(2 * PAIRS):
            assert meter.start() is None
            assert held is not None
            meter.stop(held, "data", 0)
            meter.remember_stream()
            meter.collect()

    other = threading.Thread(target=meddle)
    other.start()
    other.join()
    assert gpu.calls == calls
    _wait(gpu, meter, 5)
    assert _idle_ms(gpu, meter) == 15


@each_call
def test_a_failure_ends_it(gpu: ScriptedGpu, call: str) -> None:
    """It is swallowed and said; then CUDA is left alone for good."""
    meter = _meter()
    _wait(gpu, meter, 10)
    assert _idle_ms(gpu, meter) == 10
    gpu.failures[call] = RuntimeError("CUDA error: device-side assert triggered")
    for _ in range(10):
        _wait(gpu, meter, 10)
        meter.collect()
    assert degraded.FOUND == {
        "cuda_events": "RuntimeError: CUDA error: device-side assert triggered"
    }
    calls = list(gpu.calls)
    gpu.failures.clear()
    _wait(gpu, meter, 10)
    meter.remember_stream()
    meter.collect()
    assert gpu.calls == calls
    assert meter.idle_ns["data"] == 10 * MS


@each_call
@pytest.mark.parametrize("error", [RecursionError("deep"), MemoryError()])
def test_a_job_without_room_ends_nothing(gpu: ScriptedGpu, call: str, error: Exception) -> None:
    """However often it happens."""
    meter = _meter()
    gpu.failures[call] = error
    for _ in range(10):
        _wait(gpu, meter, 10)
        meter.collect()
    gpu.failures.clear()
    before = _idle_ms(gpu, meter)
    _wait(gpu, meter, 7)
    assert _idle_ms(gpu, meter) - before == 7
    assert not degraded.FOUND


@each_call
def test_a_signal_handler_may_come_in_between(gpu: ScriptedGpu, call: str) -> None:
    """A handler that saves a checkpoint in the middle of our call neither hangs nor breaks it."""
    meter = _meter()
    _wait(gpu, meter, 10)

    def handler() -> None:
        gpu.during.clear()
        _wait(gpu, meter, 3, "checkpoint")

    gpu.during[call] = handler
    _wait(gpu, meter, 10)
    assert not degraded.FOUND
    assert _idle_ms(gpu, meter, "checkpoint") == 3
    assert _idle_ms(gpu, meter) == 20


def test_the_device_may_change(gpu: ScriptedGpu) -> None:
    """An event stays with the device of its first record: the other device gets its own."""
    meter = _meter()
    gpu.contexts.add(1)
    for device in (0, 1, 0, 1, 0):
        gpu.device = device
        _wait(gpu, meter, 10)
        across = meter.start()
        gpu.device = 1 - device
        gpu.host(3)
        assert across is not None
        meter.stop(across, "logging", 3 * MS)
        _wait(gpu, meter, 2, "checkpoint")
    assert not degraded.FOUND
    assert _idle_ms(gpu, meter) == 50
    assert _idle_ms(gpu, meter, "logging") == 15
    assert _idle_ms(gpu, meter, "checkpoint") == 10
    assert gpu.events <= 12


def _in_a_forked_child(check: Callable[[], bool]) -> bool:
    """Return what a child finds; it never gets back into pytest."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover
        try:
            os.write(writes, b"y" if check() else b"n")
        finally:
            os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    answer = os.read(reads, 1)
    os.close(reads)
    return answer == b"y"


@forks
def test_a_forked_child_leaves_the_parent_s_events_alone(gpu: ScriptedGpu) -> None:
    """It neither uses, frees nor resolves them; its own meter knows of no idle time."""
    meter = _meter()
    _wait(gpu, meter, 10)
    assert _idle_ms(gpu, meter) == 10
    _wait(gpu, meter, 10)

    def child() -> bool:
        calls = list(gpu.calls)
        gpu.initialized = False  # as is_initialized() says in a child forked after CUDA's start
        mine = _meter()
        for each in (meter, mine):
            _wait(gpu, each, 10)
            each.collect()
        return gpu.calls == calls and not FREE_EVENTS and not mine.measuring

    assert _in_a_forked_child(child)
    assert _idle_ms(gpu, meter) == 20


def test_events_are_never_destroyed(gpu: ScriptedGpu) -> None:
    """``~CUDAEvent`` calls CUDA, which a forked child or a failed job must not."""
    gone: list[object] = []

    class Event(gpu.torch.cuda.Event):  # type: ignore[misc, name-defined]
        def __del__(self) -> None:
            gone.append(self)

    gpu.torch.cuda.Event = Event
    meter = _meter()
    _wait(gpu, meter, 10)
    del meter
    FREE_EVENTS.clear()
    assert gone == []


# Arithmetic: random scripts on one stream against the set definition |phase \ busy|.

_SPANS = st.integers(min_value=0, max_value=40)
_HOST = st.tuples(st.just("host"), _SPANS)
_LAUNCH = st.tuples(st.just("launch"), _SPANS)


def _phases(depth: int) -> st.SearchStrategy[Any]:
    """Phases in which the stream gets no work, but in inner ones, and others."""
    inside = st.one_of(_HOST, _phases(depth - 1)) if depth else _HOST
    waits = st.tuples(st.sampled_from(MEASURED_PHASES), st.lists(inside, max_size=4))
    works = st.tuples(
        st.sampled_from(("eval", "forward", "optimizer")),
        st.lists(st.one_of(inside, _LAUNCH), max_size=4),
    )
    return st.one_of(waits, works)


def _outside(spans: list[tuple[int, int]], busy: list[tuple[int, int]]) -> int:
    """The length of the spans that no busy span covers; the busy ones follow each other."""
    covered = sum(
        max(0, min(end, done) - max(begin, start)) for begin, end in spans for start, done in busy
    )
    return sum(end - begin for begin, end in spans) - covered


class _Player:
    """Plays a script; notes when each phase that has no other inside was under way."""

    def __init__(self, gpu: ScriptedGpu, meter: IdleMeter) -> None:
        self.gpu = gpu
        self.meter = meter
        self.own: dict[str, list[tuple[int, int]]] = {}

    def play(self, script: list[tuple[str, Any]]) -> None:
        for name, argument in script:
            if name == "host":
                self.gpu.host(argument)
            elif name == "launch":
                self.gpu.launch(argument)
            else:
                self._phase(name, argument)

    def _phase(self, name: str, script: list[tuple[str, Any]]) -> int:
        pair = self.meter.start(measured=name in MEASURED_PHASES)
        began_ns, inner_ns, has_inner = self.gpu.now_ns, 0, False
        for step in script:
            if step[0] in ("host", "launch"):
                self.play([step])
            else:
                has_inner = True
                inner_ns += self._phase(*step)
        took_ns = self.gpu.now_ns - began_ns
        if not has_inner:
            self.own.setdefault(name, []).append((began_ns, self.gpu.now_ns))
        if pair is not None:
            self.meter.stop(pair, name, took_ns - inner_ns)
        return took_ns


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(st.one_of(_HOST, _LAUNCH, _phases(2)), max_size=8), st.booleans())
def test_random_scripts_agree_with_the_definition(script: list[Any], collecting: bool) -> None:
    """Per phase S = |its time without the stream's busy time|, never above W, never falling."""
    with _scripted() as gpu:
        meter = _meter()
        player = _Player(gpu, meter)
        before = dict(meter.idle_ns)
        for step in script:
            player.play([step])
            if collecting:
                meter.collect()
            assert all(meter.idle_ns[phase] >= before[phase] for phase in before)
            before = dict(meter.idle_ns)
        gpu.host(1e6)
        meter.collect()
        busy = gpu.default_stream(0).busy
        for phase in MEASURED_PHASES:
            spans = player.own.get(phase, [])
            assert meter.idle_ns[phase] == _outside(spans, busy)
            assert meter.idle_ns[phase] <= sum(end - begin for begin, end in spans)


_STEPS = st.lists(
    st.tuples(
        st.integers(0, 50),  # the wait for the batch
        st.lists(st.tuples(st.integers(0, 10), st.integers(0, 60)), max_size=4),  # host, kernel
        st.booleans(),  # loss.item()
    ),
    min_size=1,
    max_size=12,
)


def _run_loop(gpu: ScriptedGpu, meter: IdleMeter | None, steps: list[Any]) -> tuple[int, int]:
    """Return (time until all work is done, host wait), in nanoseconds; no waits without a meter."""
    began_ns = gpu.now_ns
    waited_ns = 0
    stream: Stream = gpu.default_stream(0)
    for wait_ms, kernels, synchronizes in steps:
        if meter is not None:
            _wait(gpu, meter, wait_ms)
            waited_ns += wait_ms * MS
        for host_ms, kernel_ms in kernels:
            gpu.host(host_ms)
            stream.launch(kernel_ms * MS)
        if synchronizes:
            stream.synchronize()
    stream.synchronize()
    return gpu.now_ns - began_ns, waited_ns


@settings(max_examples=3 * settings().max_examples)
@given(_STEPS)
def test_exposed_stall_and_host_wait_bracket_what_can_be_recovered(steps: list[Any]) -> None:
    """S <= C* <= W for every loop with one stream whose host and GPU meet at launches and syncs."""
    with _scripted() as gpu:
        meter = _meter()
        with_waits_ns, waited_ns = _run_loop(gpu, meter, steps)
        gpu.host(1e6)
        meter.collect()
        without_ns, _ = _run_loop(gpu, None, steps)
        recoverable_ns = with_waits_ns - without_ns
        assert meter.idle_ns["data"] <= recoverable_ns <= waited_ns
