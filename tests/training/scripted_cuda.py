# SPDX-License-Identifier: Apache-2.0
"""A stand-in for torch with CUDA whose clock and streams are scripted, so that S is known exactly.

Streams work through their launches in order: one starts when it is launched or when the one before
it ends, whichever is later. An event on a stream happens once all that was launched before it has
ended, never before it is recorded. Hence between two events with no launch in between

    elapsed(Ea, Eb) = max(0, t_return - max(t_call, t_drain))

While a stream captures, recording, querying or reading the clock of an event from any thread
invalidates the capture, as in CUDA's ``global`` mode.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

MS = 1_000_000


class Stream:
    """One in-order queue; ``busy`` are the spans (begin, end) of its work in nanoseconds."""

    def __init__(self, gpu: ScriptedGpu, device_index: int, stream_id: int) -> None:
        self.gpu = gpu
        self.device_index = device_index
        self.stream_id = stream_id
        self.busy: list[tuple[int, int]] = []
        self.drain_ns = 0
        self.destroyed = False

    def launch(self, duration_ns: int) -> None:
        """Queue work; the host does not wait."""
        begin = max(self.gpu.now_ns, self.drain_ns)
        self.drain_ns = begin + duration_ns
        self.busy.append((begin, self.drain_ns))

    def wait_stream(self, other: Stream) -> None:
        """Let what is launched from now on wait for what the other one has queued."""
        self.drain_ns = max(self.drain_ns, other.drain_ns)

    def synchronize(self) -> None:
        """Let the host wait until the stream is empty."""
        self.gpu.now_ns = max(self.gpu.now_ns, self.drain_ns)


class ScriptedGpu:
    """The state behind one stand-in, and what the script does to it."""

    def __init__(self, *, initialized: bool = True) -> None:
        self.now_ns = 1_000 * MS
        self.initialized = initialized
        self.compiling = False
        self.grad_enabled = True
        self.stuck = False
        self.device = 0
        self.contexts = {0} if initialized else set()
        self.calls: list[str] = []
        self.violations: list[str] = []
        self.failures: dict[str, Exception] = {}
        self.during: dict[str, Callable[[], object]] = {}
        self.events = 0
        self.capturing: dict[Stream, Any] = {}
        self.default_streams: dict[int, Stream] = {}
        self._next_stream = 1
        self._local = threading.local()
        self.torch = _torch(self)

    def host(self, milliseconds: float) -> None:
        """Let the host work or wait."""
        self.now_ns += round(milliseconds * MS)

    def launch(self, milliseconds: float) -> None:
        """Queue work on the current stream."""
        self.current_stream().launch(round(milliseconds * MS))

    def call(self, name: str) -> None:
        """Note a call that needs CUDA; fail it or run what the test scripted for it."""
        self.calls.append(name)
        if self.capturing and name.startswith("Event."):
            self.violations.append(name)
        during = self.during.get(name)
        if during is not None:
            during()
        if name in self.failures:
            raise self.failures[name]

    def default_stream(self, device: int) -> Stream:
        """Return the default stream of a device."""
        return self.default_streams.setdefault(device, Stream(self, device, 0))

    def new_stream(self) -> Stream:
        """Return a side stream of torch's own pool: their ids are odd."""
        self._next_stream += 2
        return Stream(self, self.device, self._next_stream)

    def external_stream(self) -> Stream:
        """Return a stream that another library made: their ids are the handle."""
        return Stream(self, self.device, 0x7F00_0000_1000)

    def current_stream(self) -> Stream:
        """Return the current stream of this thread on the current device."""
        stack: list[Stream] = getattr(self._local, "stack", [])
        return stack[-1] if stack else self.default_stream(self.device)

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        """Make a stream the current one of this thread."""
        stack: list[Stream] = self._local.__dict__.setdefault("stack", [])
        stack.append(stream)
        try:
            yield
        finally:
            stack.pop()


def _event_class(gpu: ScriptedGpu) -> type:
    class Event:
        def __init__(self, enable_timing: bool = False) -> None:
            gpu.events += 1
            self.timed = enable_timing
            self.device_index: int | None = None
            self.time_ns = 0

        def record(self, stream: Stream | None = None) -> None:
            gpu.call("Event.record")
            stream = gpu.current_stream() if stream is None else stream
            assert not stream.destroyed, "a destroyed stream ends the job"
            if self.device_index not in (None, stream.device_index):
                raise RuntimeError("Event device does not match recording stream's device.")
            self.device_index = stream.device_index
            gpu.contexts.add(stream.device_index)
            self.time_ns = max(gpu.now_ns, stream.drain_ns)

        def query(self) -> bool:
            gpu.call("Event.query")
            return not gpu.stuck and gpu.now_ns >= self.time_ns

        def elapsed_time(self, end: Event) -> float:
            gpu.call("Event.elapsed_time")
            if not (self.timed and end.timed):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if gpu.now_ns < max(self.time_ns, end.time_ns):
                raise RuntimeError("Both events must be completed.")
            return (end.time_ns - self.time_ns) / MS

        def synchronize(self) -> None:
            raise AssertionError("nothing may wait for the GPU")

    return Event


def _graph_class(gpu: ScriptedGpu) -> type:
    class CUDAGraph:
        def __init__(self, keep_graph: bool = False) -> None:
            self.keep_graph = keep_graph
            self.stream: Stream | None = None

        def capture_begin(
            self,
            pool: object = None,
            capture_error_mode: str = "global",
            check_input_liveness: bool = False,
        ) -> None:
            """Begin capturing CUDA work on the current stream."""
            gpu.call("CUDAGraph.capture_begin")
            stream = gpu.current_stream()
            if stream.stream_id == 0:
                raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
            if stream in gpu.capturing:
                raise RuntimeError("the stream captures already")
            self.stream = stream
            gpu.capturing[stream] = self

        def capture_end(self) -> None:
            """End CUDA graph capture on the current stream."""
            stream = gpu.current_stream()
            if stream is not self.stream:
                raise RuntimeError("Capture must end on the same stream it began on.")
            del gpu.capturing[stream]
            gpu.call("CUDAGraph.capture_end")

    return CUDAGraph


def _torch(gpu: ScriptedGpu) -> Any:
    """Return a module that offers of torch what a training client may look at."""

    def current_stream(device: int | None = None) -> Stream:
        # The real one initialises CUDA.
        gpu.call("current_stream")
        gpu.initialized = True
        return gpu.current_stream()

    def get_device_properties(device: int) -> SimpleNamespace:
        gpu.call("get_device_properties")
        gpu.initialized = True
        return SimpleNamespace(uuid=f"00000000-0000-0000-0000-{device:012d}", name="Scripted")

    @contextmanager
    def graph(cuda_graph: Any, **options: Any) -> Iterator[None]:
        with gpu.on(gpu.new_stream()):
            cuda_graph.capture_begin(**options)
            try:
                yield
            finally:
                cuda_graph.capture_end()

    cuda: Any = ModuleType("torch.cuda")
    cuda.is_initialized = lambda: gpu.initialized
    cuda.is_available = lambda: True
    cuda.current_device = lambda: gpu.device
    cuda.current_stream = current_stream
    cuda.is_current_stream_capturing = lambda: gpu.current_stream() in gpu.capturing
    cuda.get_device_properties = get_device_properties
    cuda.memory_stats = lambda device=None: {}
    cuda.Event = _event_class(gpu)
    cuda.Stream = gpu.new_stream
    cuda.stream = gpu.on
    cuda.CUDAGraph = _graph_class(gpu)
    cuda.graph = graph
    torch: Any = ModuleType("torch")
    torch.__version__ = "2.13.0+scripted"
    torch.version = SimpleNamespace(cuda="13.0", hip=None)
    torch.cuda = cuda
    torch.compiler = SimpleNamespace(is_compiling=lambda: gpu.compiling)
    torch._C = SimpleNamespace(_cuda_hasPrimaryContext=lambda device: device in gpu.contexts)
    torch.is_grad_enabled = lambda: gpu.grad_enabled
    return torch
