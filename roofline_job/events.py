# SPDX-License-Identifier: Apache-2.0
"""What of ``torch.cuda`` the idle meter uses, and the events that it takes and gives back."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

FREE_EVENTS: dict[int, list[tuple[Any, Any]]] = {}
"""Unused event pairs by device: an event belongs to the device of its first record."""


os.register_at_fork(after_in_child=FREE_EVENTS.clear)


class Cuda:
    """The functions of one torch, looked up once; without CUDA only `built` is set."""

    __slots__ = (
        "_event",
        "built",
        "capturing",
        "current_stream",
        "has_context",
        "initialized",
    )

    def __init__(self, torch: Any) -> None:
        version = torch.version
        self.built = bool(getattr(version, "cuda", None) or getattr(version, "hip", None))
        if not self.built:
            return
        self.initialized: Callable[[], bool] = torch.cuda.is_initialized
        self.current_stream: Callable[[], Any] = torch.cuda.current_stream
        self.capturing: Callable[[], bool] = torch.cuda.is_current_stream_capturing
        self.has_context: Callable[[int], bool] = getattr(
            torch._C, "_cuda_hasPrimaryContext", _always
        )
        self._event: Callable[..., Any] = torch.cuda.Event

    def event_pair(self) -> tuple[Any, Any]:
        """Return two new events that are never destroyed.

        ``~CUDAEvent`` calls CUDA: it would end a forked child by std::terminate, and print a
        warning into the output of a job that ends after a failed kernel.
        """
        pair = (self._event(enable_timing=True), self._event(enable_timing=True))
        for event in pair:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(event))
        return pair


def _always(_: int) -> bool:
    return True


def is_external(stream: Any) -> bool:
    """Return whether another library owns the stream, and so may destroy it.

    c10/cuda/CUDAStream.cpp: the id is 0 for the default stream, odd for torch's own, and the
    (even) handle for an external one.
    """
    number: int = stream.stream_id
    return number != 0 and number % 2 == 0
