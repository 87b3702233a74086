# SPDX-License-Identifier: Apache-2.0
"""Whether a CUDA graph capture is under way anywhere in this process.

While one is, recording or querying an event can invalidate it, from any thread (PyTorch's own
NCCL watchdog did this: pull requests 104487, 104555 and 148594). PyTorch tells only of the current
stream, so ``capture_begin`` and ``capture_end`` are wrapped to keep count.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from .failures import failed
from .frameless import StandIn

GRAPH_CLASSES = (("cuda", "CUDAGraph"), ("accelerator", "Graph"))
"""Where torch keeps the classes whose objects capture: (module, class)."""


class Captures:
    """The streams on which a capture is under way.

    A stream carries at most one capture, and a capture ends on the stream on which it began. A
    graph object that is dropped in between leaves its stream capturing, so the streams are what is
    remembered, not the graphs.

    ``lock`` makes "nothing is under way, so make a CUDA call" one step: whoever makes such calls
    holds it, and no capture begins meanwhile. It is reentrant because a signal handler of the job
    may come in between.
    """

    __slots__ = ("begun", "lock", "streams")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: a forked child has no captures, and perhaps a lock nobody holds."""
        self.lock = threading.RLock()
        self.streams: set[Any] = set()
        self.begun = 0

    def watch(self, torch: Any) -> None:
        """Wrap the classes of this torch that capture, once each; what it lacks is left out."""
        cuda = torch.cuda

        def over() -> None:
            self._unmark(cuda)

        def begin() -> Callable[[], object]:
            self._mark(cuda)
            return over

        for module, name in GRAPH_CLASSES:
            graph = getattr(getattr(torch, module, None), name, None)
            if graph is not None and type(graph.capture_begin) is not StandIn:
                graph.capture_begin = StandIn(graph.capture_begin, begin)
                graph.capture_end = StandIn(graph.capture_end, lambda: over)

    def _mark(self, cuda: Any) -> None:
        """Count the current stream as capturing; never raises."""
        try:
            # Before torch's own initialisation ``current_stream`` would create a context.
            if cuda.is_initialized():
                stream = cuda.current_stream()
                with self.lock:
                    self.begun += 1
                    self.streams.add(stream)
        except Exception as error:
            failed(error)

    def _unmark(self, cuda: Any) -> None:
        """Take the current stream off unless it still captures; never raises.

        It does not when a capture has ended, was refused, or was found invalidated at its end. It
        does when a second capture was refused because of the first. ``capture_end`` on a wrong
        stream raises and ends nothing, and that stream is none of those counted.
        """
        try:
            if self.streams and not cuda.is_current_stream_capturing():
                self.streams.discard(cuda.current_stream())
        except Exception as error:
            failed(error)


CAPTURES = Captures()
"""Those of this process."""

os.register_at_fork(after_in_child=CAPTURES.reset)
