# SPDX-License-Identifier: Apache-2.0
"""Captures are noticed from wherever they begin, and the job's own calls stay what they were."""

from __future__ import annotations

import inspect
import threading

import pytest

from roofline_job import degraded
from roofline_job.captures import CAPTURES, GRAPH_CLASSES, PART
from tests.training.scripted_cuda import ScriptedGpu


@pytest.fixture(name="gpu")
def _gpu(client: None) -> ScriptedGpu:
    gpu = ScriptedGpu()
    CAPTURES.watch(gpu.torch)
    return gpu


def test_arguments_reach_the_original(gpu: ScriptedGpu) -> None:
    """The wrappers take what the originals take, by position or by name, and keep their names."""
    graph = gpu.torch.cuda.CUDAGraph()
    with gpu.on(gpu.new_stream()):
        graph.capture_begin("pool", capture_error_mode="thread_local", check_input_liveness=True)
        graph.capture_end()
    assert gpu.torch.cuda.CUDAGraph.capture_begin.__doc__.startswith("Begin capturing")
    with gpu.on(gpu.new_stream()), pytest.raises(TypeError):
        graph.capture_begin(no_such_argument=1)
    assert not CAPTURES.streams


def test_a_refused_capture_leaves_no_mark(gpu: ScriptedGpu) -> None:
    """``capture_begin`` on the default stream raises, as without us, and nothing is under way."""
    with pytest.raises(RuntimeError, match="non-default stream"):
        gpu.torch.cuda.CUDAGraph().capture_begin()
    assert not CAPTURES.streams


def test_a_refused_second_capture_leaves_the_first_marked(gpu: ScriptedGpu) -> None:
    """A stream that captures already refuses another; the first goes on."""
    with gpu.torch.cuda.graph(gpu.torch.cuda.CUDAGraph()):
        with pytest.raises(RuntimeError, match="already"):
            gpu.torch.cuda.CUDAGraph().capture_begin()
        assert CAPTURES.streams
    assert not CAPTURES.streams


def test_an_invalidated_capture_is_over(gpu: ScriptedGpu) -> None:
    """``capture_end`` that raises because the capture was invalidated has ended it."""
    gpu.failures["CUDAGraph.capture_end"] = RuntimeError("operation failed due to a previous error")
    with pytest.raises(RuntimeError, match="previous error"):  # noqa: SIM117
        with gpu.torch.cuda.graph(gpu.torch.cuda.CUDAGraph()):
            pass
    assert not CAPTURES.streams


def test_capture_end_on_another_stream_ends_nothing(gpu: ScriptedGpu) -> None:
    """The real one refuses, and the capture goes on until it is ended on its own stream."""
    graph = gpu.torch.cuda.CUDAGraph()
    stream = gpu.new_stream()
    with gpu.on(stream):
        graph.capture_begin()
    with pytest.raises(RuntimeError, match="same stream"):
        graph.capture_end()
    assert CAPTURES.streams == {stream}
    with gpu.on(stream):
        graph.capture_end()
    assert not CAPTURES.streams


def test_a_graph_dropped_without_end_leaves_its_stream_marked(gpu: ScriptedGpu) -> None:
    """CUDA ends no capture when the object goes: the stream captures on, so measuring stays off."""
    stream = gpu.new_stream()
    with gpu.on(stream):
        graph = gpu.torch.cuda.CUDAGraph()
        graph.capture_begin()
        del graph
    assert CAPTURES.streams == {stream}


def test_the_mark_is_set_before_the_capture_begins(gpu: ScriptedGpu) -> None:
    """There is no instant in which a capture runs unmarked."""
    marked: list[int] = []
    gpu.during["CUDAGraph.capture_begin"] = lambda: marked.append(len(CAPTURES.streams))
    gpu.during["CUDAGraph.capture_end"] = lambda: marked.append(len(CAPTURES.streams))
    with gpu.torch.cuda.graph(gpu.torch.cuda.CUDAGraph()):
        pass
    assert marked == [1, 1]


def test_a_torch_that_is_not_initialised_is_not_asked(gpu: ScriptedGpu) -> None:
    """``current_stream`` would create a context: without one there is nothing to mark."""
    gpu.initialized = False
    with gpu.torch.cuda.graph(gpu.torch.cuda.CUDAGraph()):
        assert not CAPTURES.streams
    assert "current_stream" not in gpu.calls


def test_what_fails_inside_does_not_reach_the_job(
    gpu: ScriptedGpu, capsys: pytest.CaptureFixture[str]
) -> None:
    """A torch whose ``current_stream`` raises captures as it would without us; that is said."""
    gpu.failures["current_stream"] = RuntimeError("no stream for us")
    for _ in range(2):
        with gpu.torch.cuda.graph(gpu.torch.cuda.CUDAGraph()):
            assert gpu.capturing
        assert not gpu.capturing
    assert not PART.on
    assert degraded.FOUND == {"captures": "RuntimeError: no stream for us"}
    assert capsys.readouterr().err == (
        "roofline_job: CUDA graph captures cannot be seen, so no CUDA events are used"
        " (RuntimeError: no stream for us)\n"
    )


@pytest.mark.parametrize("missing", ["capture_begin", "capture_end", "CUDAGraph"])
def test_a_torch_that_captures_otherwise_is_left_alone(client: None, missing: str) -> None:
    """Without knowing of captures no event may be used."""
    torch = ScriptedGpu().torch
    delattr(torch.cuda if missing == "CUDAGraph" else torch.cuda.CUDAGraph, missing)
    CAPTURES.watch(torch)
    assert not PART.on
    assert list(degraded.FOUND) == ["captures"]


def test_a_forked_child_starts_clean(gpu: ScriptedGpu) -> None:
    """Neither the parent's capture nor a lock that another thread held goes into the child."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with CAPTURES.lock:
            held.set()
            release.wait()

    holder = threading.Thread(target=hold)
    CAPTURES.streams.add(gpu.new_stream())
    holder.start()
    held.wait()
    CAPTURES.reset()  # what the hook does in the child; a real fork beside a thread would warn
    with CAPTURES.lock:
        assert not CAPTURES.streams
    release.set()
    holder.join()


def test_the_real_torch_has_what_is_wrapped() -> None:
    """The classes and signatures that the stand-in imitates are those of the installed torch."""
    torch = pytest.importorskip("torch")
    for module, name in GRAPH_CLASSES:
        graph = getattr(getattr(torch, module), name)
        assert inspect.isfunction(graph.capture_begin)
        assert inspect.isfunction(graph.capture_end)
    ours = inspect.signature(ScriptedGpu().torch.cuda.CUDAGraph.capture_begin).parameters
    theirs = inspect.signature(inspect.unwrap(torch.cuda.CUDAGraph.capture_begin)).parameters
    assert list(ours) == list(theirs)
    assert {name: p.default for name, p in ours.items()} == {
        name: p.default for name, p in theirs.items()
    }
    assert not torch.cuda.is_initialized()
