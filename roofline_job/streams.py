# SPDX-License-Identifier: Apache-2.0
"""How long the GPU had nothing to do while the host was in a phase: CUDA event pairs.

One event is recorded before the phase and one after it, on the stream that computes. The GPU
passes them in order with its work, so the time between them is

    S = max(0, t_return - max(t_call, t_drain))

with t_drain the end of the work that was queued before the call: the part of the phase in which
that stream was empty. That holds only where the phase queues no work of its own, so only such
phases are measured. Pairs are resolved later by ``query``; nothing ever waits for the GPU.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any

from .captures import CAPTURES
from .dynamo import leave_alone
from .events import FREE_EVENTS, Cuda, is_external

MEASURED_PHASES = ("data", "checkpoint", "logging")
"""Phases in which the host waits and the stream gets no work."""

PAIRS = 64
"""Pairs in use at most: work that never finishes must not grow the job's memory."""

FAILURES_IN_A_ROW = 3
"""Failures without a success in between after which measuring ends for good."""

_RESOLVED_PER_START = 2
_NS_PER_MS = 1_000_000


class IdlePair:
    """Two events on one stream, and what their time is counted as.

    ``inner_ns`` is the time of the pairs inside this one, ``exact`` whether all of them were
    measured, ``outer`` the pair around this one.
    """

    __slots__ = ("events", "exact", "inner_ns", "outer", "phase", "stream", "wait_ns")

    def __init__(self, events: tuple[Any, Any], stream: Any, outer: IdlePair | None) -> None:
        self.events = events
        self.stream = stream
        self.outer = outer
        self.inner_ns = 0
        self.exact = True

    phase: str
    wait_ns: int | None

    def free(self) -> None:
        """Give the events back; the pair is of no more use."""
        FREE_EVENTS.setdefault(self.stream.device_index, []).append(self.events)


def _ignore(_: Exception) -> None:
    return None


class IdleMeter:
    """The event pairs of one thread: it alone may start, stop and resolve them.

    ``idle_ns`` is S per measured phase so far, an inner phase taken off the outer one; it never
    falls. ``measuring`` says whether any pair was ever resolved: before, S is not known.
    ``failed`` is called with every failure inside; nothing is raised.
    """

    __slots__ = (
        "__weakref__",
        "_cuda",
        "_device",
        "_failures",
        "_off",
        "_open",
        "_orphaned",
        "_pending",
        "_seen",
        "_seen_at",
        "_thread",
        "failed",
        "idle_ns",
        "measuring",
    )

    def __init__(self, failed: Callable[[Exception], object] = _ignore) -> None:
        self.failed = failed
        self.reset()
        _METERS.add(self)

    def reset(self) -> None:
        """Begin anew in this thread."""
        self.idle_ns: dict[str, int] = dict.fromkeys(MEASURED_PHASES, 0)
        self.measuring = False
        self._thread = get_ident()
        self._cuda: Cuda | None = None
        self._device: int | None = None
        self._off = False
        self._failures = 0
        self._open: list[IdlePair] = []
        self._orphaned = False
        self._pending: deque[IdlePair] = deque()
        self._seen: Any = None
        self._seen_at = 0

    def start(self, *, measured: bool = True) -> IdlePair | None:
        """Record the beginning of a phase; None where it cannot be measured now.

        ``measured=False`` is for a phase that queues work: it is recorded only inside a measured
        one, to be taken off it.
        """
        if self._off or get_ident() != self._thread:
            return None
        pair = None
        try:
            cuda = self._cuda or self._bind()
            if cuda is None or not cuda.initialized() or not (measured or self._open):
                return None
            if not cuda.compiling():
                with CAPTURES.lock:
                    if not CAPTURES.streams and not cuda.capturing():
                        pair = self._begin(cuda)
                        self._resolve(_RESOLVED_PER_START)
        except Exception as error:
            self._fail(error)
        if pair is None:
            self._spoil()
        return pair

    def stop(self, pair: IdlePair, phase: str, wait_ns: int | None = None) -> None:
        """Record the end of what began with ``pair``.

        ``wait_ns`` is the host time that is counted for this phase: S is never more.
        """
        if not self._close(pair):
            return
        cuda = self._cuda
        wanted = pair.exact and (phase in MEASURED_PHASES or pair.outer is not None)
        if cuda is None or self._off or not wanted:
            pair.free()
            return
        pair.phase = phase
        pair.wait_ns = wait_ns
        try:
            if cuda.initialized() and not cuda.compiling():
                with CAPTURES.lock:
                    if not CAPTURES.streams and not cuda.capturing():
                        pair.events[1].record(pair.stream)
                        self._pending.append(pair)
                        return
        except Exception as error:
            self._fail(error)
        pair.free()
        self._spoil()

    def collect(self) -> None:
        """Add up the pairs that the GPU has passed."""
        if self._off or not self._pending or get_ident() != self._thread:
            return
        cuda = self._cuda
        try:
            if cuda is None or not cuda.initialized() or cuda.compiling():
                return
            with CAPTURES.lock:
                if not CAPTURES.streams and not cuda.capturing():
                    self._resolve(PAIRS)
        except Exception as error:
            self._fail(error)

    def stream_seen(self) -> None:
        """Remember the current stream: an optimizer has just stepped on it."""
        cuda = self._cuda
        if self._off or cuda is None or get_ident() != self._thread:
            return
        try:
            if cuda.initialized() and not cuda.compiling():
                stream = cuda.current_stream()
                if not CAPTURES.streams or stream not in CAPTURES.streams:
                    self._seen = stream
                    self._seen_at = CAPTURES.begun
        except Exception as error:
            self._fail(error)

    def _bind(self) -> Cuda | None:
        """Look torch up; None while the job has not imported all of it, or one without CUDA."""
        torch = sys.modules.get("torch")
        if torch is None:
            return None
        try:
            cuda = Cuda(torch)
            CAPTURES.watch(torch)
        except AttributeError:
            return None
        leave_alone()  # the job may have marked phases before it imported torch
        if not cuda.built:
            self._off = True
            return None
        self._cuda = cuda
        return cuda

    def _stream(self, cuda: Cuda) -> Any:
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

    def _begin(self, cuda: Cuda) -> IdlePair | None:
        if self._orphaned:
            self._open.clear()
            self._orphaned = False
        if len(self._open) + len(self._pending) >= PAIRS:
            self._resolve(PAIRS)
            return None
        outer = self._open[-1] if self._open else None
        stream = self._stream(cuda) if outer is None else outer.stream
        if stream is None:
            return None
        device = stream.device_index
        if device != self._device:
            # To record would create the context: 500 MB on GPU 0 for every rank that has
            # initialised CUDA but not yet chosen its own GPU.
            if not cuda.has_context(device):
                return None
            self._device = device
        free = FREE_EVENTS.get(device)
        events = free.pop() if free else cuda.event_pair()
        events[0].record(stream)
        pair = IdlePair(events, stream, outer)
        self._open.append(pair)
        return pair

    def _close(self, pair: IdlePair) -> bool:
        """Take a pair off the open ones; False where it is not among them any more."""
        if get_ident() != self._thread:
            # The owner alone touches its lists: it sorts this out when it starts its next pair.
            self._orphaned = True
            return False
        running = self._open
        if running and running[-1] is pair:
            running.pop()
            return True
        if pair not in running:
            return False
        # What began later was abandoned, or overlaps without being inside: neither this one's
        # share can be told nor theirs.
        self._spoil()
        place = running.index(pair)
        for later in running[place + 1 :]:
            later.free()
        del running[place:]
        return True

    def _spoil(self) -> None:
        """Something inside the open pairs was not measured: theirs alone is not known."""
        for pair in self._open:
            pair.exact = False

    def _resolve(self, limit: int) -> None:
        """Count up to ``limit`` pairs that the GPU has passed, first in first out."""
        pending = self._pending
        while pending and limit:
            limit -= 1
            pair = pending[0]
            before, after = pair.events
            # A signal handler of the job may have come in between and resolved it.
            if not after.query() or not pending or pending[0] is not pair:
                return
            pending.popleft()
            try:
                elapsed_ns = max(0, round(before.elapsed_time(after) * _NS_PER_MS))
            except Exception:
                outer = pair.outer
                while outer is not None:
                    outer.exact = False
                    outer = outer.outer
                raise
            self._failures = 0
            self.measuring = True
            if pair.outer is not None:
                pair.outer.inner_ns += elapsed_ns
            if pair.exact and pair.phase in self.idle_ns:
                own_ns = max(0, elapsed_ns - pair.inner_ns)
                if pair.wait_ns is not None:
                    own_ns = min(own_ns, pair.wait_ns)
                self.idle_ns[pair.phase] += own_ns
            pair.free()

    def _fail(self, error: Exception) -> None:
        self._failures += 1
        self._off = self._off or self._failures >= FAILURES_IN_A_ROW
        self.failed(error)


_METERS: weakref.WeakSet[IdleMeter] = weakref.WeakSet()


def _forget_parent() -> None:
    FREE_EVENTS.clear()
    for meter in list(_METERS):
        meter.reset()


os.register_at_fork(after_in_child=_forget_parent)
