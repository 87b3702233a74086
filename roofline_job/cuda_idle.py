# SPDX-License-Identifier: Apache-2.0
"""How long the GPU had nothing to do while the host was in a phase: CUDA event pairs.

One event is recorded before the phase and one after it, on the stream that computes. The GPU
passes them in order with its work, so the time between them is

    S = max(0, t_return - max(t_call, t_drain))

with t_drain the end of the work that was queued before the call: the part of the phase in which
that stream was empty. That holds only where the phase queues no work of its own, so only such
phases are measured, and only where nothing else begins inside. Pairs are resolved later by
``query``; nothing ever waits for the GPU.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from typing import Any, TypeVar

from . import switches
from .captures import CAPTURES
from .captures import PART as CAPTURES_PART
from .degraded import Part
from .exact_types import attribute
from .wrapping import compiling

Value = TypeVar("Value")

MEASURED_PHASES = ("data", "checkpoint", "logging")
"""Phases in which the host waits and the stream gets no work."""

PAIRS = 64
"""Pairs in use at most: work that never finishes must not grow the job's memory."""

_RESOLVED_PER_START = 2
_NS_PER_MS = 1_000_000


FREE_EVENTS: dict[int, list[tuple[Any, Any]]] = {}
"""Unused event pairs by device: an event belongs to the device of its first record."""


os.register_at_fork(after_in_child=FREE_EVENTS.clear)


def _event_pair(cuda: Any) -> tuple[Any, Any]:
    """Return two new events that are never destroyed.

    ``~CUDAEvent`` calls CUDA: it would end a forked child by std::terminate, and print a warning
    into the output of a job that ends after a failed kernel.
    """
    pair = (cuda.Event(enable_timing=True), cuda.Event(enable_timing=True))
    for event in pair:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(event))
    return pair


def is_external(stream: Any) -> bool:
    """Return whether another library owns the stream, and so may destroy it.

    c10/cuda/CUDAStream.cpp: the id is 0 for the default stream, odd for torch's own, and the
    (even) handle for an external one.
    """
    number: int = stream.stream_id
    return number != 0 and number % 2 == 0


@dataclass(eq=False, slots=True)
class IdlePair:
    """Two events on one stream, and the phase between them."""

    events: tuple[Any, Any]
    stream: Any
    void: bool = False
    """Whether another phase began inside: then this pair is not counted."""
    phase: str = ""
    wait_ns: int = 0

    def free(self) -> None:
        """Return the events to the pool."""
        FREE_EVENTS.setdefault(self.stream.device_index, []).append(self.events)


PART = Part("cuda_events")


class IdleMeter:
    """The event pairs of one thread: it alone may start, stop and resolve them.

    Of phases inside each other the innermost is measured. ``idle_ns``, S per phase so far, is known
    once any pair was resolved (``measuring``). Only what a handler of a signal raises is raised.
    """

    def __init__(self) -> None:
        self.idle_ns: dict[str, int] = dict.fromkeys(MEASURED_PHASES, 0)
        self.measuring = False
        self.ready = False
        """Whether there is CUDA: only then call `start`."""
        self._thread = get_ident()
        self._cuda: Any = None
        """``torch.cuda``, once it is found."""
        self._built: bool | None = None
        """Whether this torch is built with CUDA; None before it is looked at."""
        self._has_context: Callable[[int], bool] | None = None
        self._device: int | None = None
        self._off = not switches.CUDA_EVENTS
        self._open: IdlePair | None = None
        """The latest pair that was started."""
        self._pending: deque[IdlePair] = deque()
        self._done = 0.0
        self._marks: deque[tuple[IdlePair, float]] = deque()
        """Events recorded behind launched work, with the FLOPs launched until then."""
        self._seen: Any = None
        self._seen_at = 0

    def find_cuda(self) -> None:
        """Look for CUDA, in a job that has imported torch."""
        torch: Any = sys.modules.get("torch")
        # While it is being imported, it has no such attribute yet.
        if self.ready or self._off or attribute(torch, "cuda") is None:
            return
        try:
            version = torch.version
            built = bool(getattr(version, "cuda", None) or getattr(version, "hip", None))
            if built:
                self._cuda = torch.cuda
                self._has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
                CAPTURES.watch(torch)
            self._built = built
            self._off = not built or not CAPTURES_PART.on
            self.ready = not self._off
        except Exception as error:
            self._fail(error)

    def start(self, *, measured: bool = True) -> IdlePair | None:
        """Record the start of a phase; return None where it cannot be measured now.

        ``measured=False`` is for a phase that queues work: no time around it can be measured.
        """
        if get_ident() != self._thread:
            return None
        outer, self._open = self._open, None
        if outer is not None:
            outer.void = True
        return self._calling(lambda cuda: self._begin(cuda, outer)) if measured else None

    def stop(self, pair: IdlePair, phase: str, wait_ns: int) -> None:
        """Record the end of the phase that began with ``pair``; S is at most its host time."""
        if get_ident() != self._thread:
            return
        if self._open is pair:
            self._open = None
        pair.phase, pair.wait_ns = phase, wait_ns
        is_wanted = not pair.void and phase in MEASURED_PHASES
        if not is_wanted or not self._calling(lambda _: self._end(pair)):
            pair.free()

    def collect(self) -> None:
        """Add up the pairs that the GPU has passed."""
        if self._pending and get_ident() == self._thread:
            self._calling(lambda _: self._resolve(PAIRS))

    def done(self, flops: float) -> float | None:
        """Return the FLOPs launched before the latest event that the GPU has passed; None if they
        are unknown."""
        self.find_cuda()
        if self._built is not None and not (self._built and self._cuda.is_initialized()):
            self._done = flops  # on the CPU, which is done when it returns
            return flops
        if self.ready and get_ident() == self._thread:
            self._calling(lambda found: self._mark(found, flops))
        return self._done if self.ready else None

    def _mark(self, cuda: Any, flops: float) -> None:
        marks = self._marks
        newest = marks[-1][1] if marks else self._done
        is_wanted = newest < flops and len(marks) < PAIRS
        pair = self._pair(cuda, self._stream(cuda)) if is_wanted else None
        if pair is not None:
            pair.events[1].record(pair.stream)
            marks.append((pair, flops))
        while marks and marks[0][0].events[1].query():
            pair, self._done = marks.popleft()
            pair.free()

    def remember_stream(self) -> None:
        """Remember the current stream: an optimizer has just stepped on it."""
        if get_ident() == self._thread:
            self._calling(self._remember)

    def _remember(self, cuda: Any) -> None:
        self._seen, self._seen_at = cuda.current_stream(), CAPTURES.begun

    def _calling(self, function: Callable[[Any], Value]) -> Value | None:
        """Call a function that uses CUDA; None if CUDA must not be used now, or it failed."""
        cuda = self._cuda
        if not self.ready or not CAPTURES_PART.on:
            return None
        try:
            if cuda.is_initialized() and not compiling():
                with CAPTURES.lock:
                    if not CAPTURES.streams and not cuda.is_current_stream_capturing():
                        return function(cuda)
        except Exception as error:
            self._fail(error)
        return None

    def _begin(self, cuda: Any, outer: IdlePair | None) -> IdlePair | None:
        self._resolve(_RESOLVED_PER_START)
        if len(self._pending) >= PAIRS:
            return None
        # A prefetcher may wait for its loader while the stream of its copies is the current one.
        pair = self._pair(cuda, self._stream(cuda) if outer is None else outer.stream)
        if pair is not None:
            pair.events[0].record(pair.stream)
            self._open = pair
        return pair

    def _pair(self, cuda: Any, stream: Any) -> IdlePair | None:
        """Return a pair of free events for a stream; None without a stream."""
        if stream is None:
            return None
        device = stream.device_index
        if device != self._device:
            # To record would create the context: 500 MB on GPU 0 for every rank that has
            # initialised CUDA but not yet chosen its own GPU.
            if self._has_context is not None and not self._has_context(device):
                return None
            self._device = device
        free = FREE_EVENTS.get(device)
        return IdlePair(free.pop() if free else _event_pair(cuda), stream)

    def _stream(self, cuda: Any) -> Any:
        """Return the stream that computes, None where it may not exist any more.

        That is the stream on which an optimizer last stepped, unless a capture began since: then
        that step was warm-up on a side stream, and graphs are replayed on the current one.
        """
        seen = self._seen
        if seen is None or self._seen_at != CAPTURES.begun:
            return cuda.current_stream()
        if is_external(seen) and seen != cuda.current_stream():
            return None
        return seen

    def _end(self, pair: IdlePair) -> bool:
        pair.events[1].record(pair.stream)
        self._pending.append(pair)
        return True

    def _resolve(self, limit: int) -> None:
        """Count up to ``limit`` pairs that the GPU has passed, first in first out."""
        pending = self._pending
        while pending and limit:
            limit -= 1
            pair = pending[0]
            before, after = pair.events
            # A signal handler of the job may have run in between and resolved it.
            if not after.query() or not pending or pending[0] is not pair:
                return
            pending.popleft()
            elapsed_ns = max(0, round(before.elapsed_time(after) * _NS_PER_MS))
            self.measuring = True
            self.idle_ns[pair.phase] += min(elapsed_ns, pair.wait_ns)
            pair.free()

    def _fail(self, error: Exception) -> None:
        """End measuring for good: a call that failed may harm a capture that is not known of."""
        try:
            PART.fail(error)
        finally:
            del error  # see `Part.fail`
        if not PART.on:
            self._off, self.ready = True, False
