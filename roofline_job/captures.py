# SPDX-License-Identifier: Apache-2.0
"""Whether a CUDA graph capture is under way anywhere in this process.

While one is, recording or querying an event can invalidate it, from any thread (PyTorch's own NCCL
watchdog did: pull requests 104487, 104555 and 148594). PyTorch only says whether the current stream
captures, so ``capture_begin`` and ``capture_end`` are wrapped.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from .degraded import Part
from .wrapping import replace

GRAPH_CLASSES = (("cuda", "CUDAGraph"), ("accelerator", "Graph"))
"""Where torch keeps the classes whose objects capture: (module, class)."""
PART = Part("captures")


class Captures:
    """The streams on which a capture is under way.

    Not the graphs: one that is dropped before its end leaves its stream capturing.

    A thread that calls CUDA because nothing is under way holds ``lock``, and no capture begins
    meanwhile. It is reentrant: a signal handler of the job may run in between.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: a forked child has no captures, but maybe a lock of another thread."""
        self.lock = threading.RLock()
        self.streams: set[Any] = set()
        self.begun = 0

    def watch(self, torch: Any) -> None:
        """Wrap the classes of this torch that capture, once each."""
        classes = [
            found
            for module, name in GRAPH_CLASSES
            if (found := getattr(getattr(torch, module, None), name, None)) is not None
        ]
        if not classes:
            PART.miss("torch.cuda has no CUDAGraph")
        for graph in classes:
            if not hasattr(graph, "capture_begin") or not hasattr(graph, "capture_end"):
                PART.miss(f"{graph.__name__} has no capture_begin and capture_end")
            else:
                replace(graph, "capture_begin", partial(self._wrapped, torch.cuda, begins=True))
                replace(graph, "capture_end", partial(self._wrapped, torch.cuda, begins=False))

    def _wrapped(self, cuda: Any, original: Callable[..., Any], *, begins: bool) -> Any:
        def capture(*args: Any, **kwargs: Any) -> Any:
            if begins:
                self._mark(cuda)
            try:
                return original(*args, **kwargs)
            finally:
                self._unmark(cuda)

        return capture

    def _mark(self, cuda: Any) -> None:
        """Add the current stream; never raises."""
        try:
            # Before torch's own initialisation ``current_stream`` would create a context.
            if cuda.is_initialized():
                stream = cuda.current_stream()
                with self.lock:
                    self.begun += 1
                    self.streams.add(stream)
        except Exception as error:
            PART.fail(error)

    def _unmark(self, cuda: Any) -> None:
        """Remove the current stream unless it still captures; never raises.

        It still does when a second capture was refused because of the first, or ``capture_end`` was
        called on a wrong stream.
        """
        try:
            if self.streams and not cuda.is_current_stream_capturing():
                self.streams.discard(cuda.current_stream())
        except Exception as error:
            PART.fail(error)


CAPTURES = Captures()
"""The captures of this process."""

os.register_at_fork(after_in_child=CAPTURES.reset)
