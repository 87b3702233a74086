# SPDX-License-Identifier: Apache-2.0
"""Calls a function before SIGTERM ends the process, in a job that does not handle SIGTERM.

The job does not see the handler: its module ``signal`` returns SIG_DFL instead, and a forked child
has no handler.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

from .wrapping import replace

_signal: Any = sys.modules["_signal"]
_finish: Callable[[], object] = lambda: None  # noqa: E731 # as the function that takes its place


def before_termination(finish: Callable[[], object]) -> None:
    """Call a function before SIGTERM ends this process; not if the job handles the signal, nor when
    this is not its main thread."""
    global _finish
    module = sys.modules.get("signal")
    if module is not None and _is(_signal.SIG_DFL) and not _is_caught():
        _finish = finish
        replace(module, "signal", _hiding)
        replace(module, "getsignal", _hiding)
        _set(_terminate)


def _terminate(number: int, _: object) -> None:
    try:
        _finish()
    finally:
        _set(_signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _hiding(original: Callable[..., Any]) -> Callable[..., Any]:
    armed = os.getpid()

    def hidden(*args: Any, **kwargs: Any) -> Any:
        handler = original(*args, **kwargs)
        if _is(_signal.SIG_DFL) and os.getpid() == armed:  # as when the job removes its own handler
            _set(_terminate)
        return sys.modules["signal"].SIG_DFL if handler is _terminate else handler

    return hidden


def _is(handler: object) -> bool:
    return bool(_signal.getsignal(_signal.SIGTERM) == handler)


def _is_caught() -> bool:
    """Return whether the kernel knows a handler; one that is not Python's is seen nowhere else."""
    try:
        with open("/proc/self/status", "rb") as file:
            caught = file.read().partition(b"SigCgt:")[2].split(None, 1)[0]
    except (OSError, IndexError):
        return False
    return bool(int(caught, 16) >> (_signal.SIGTERM - 1) & 1)


def _set(handler: object) -> None:
    try:
        _signal.signal(_signal.SIGTERM, handler)
    except ValueError:  # another thread than the main one
        return


def _block_sigterm() -> None:
    """Block SIGTERM over a fork: one that meets a child before its default is set is lost.

    The parent keeps its handler, which may be one of a C library by now.
    """
    if _is(_terminate):
        _masks[get_ident()] = _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGTERM,))


def _unblock_sigterm() -> None:
    mask = _masks.pop(get_ident(), None)
    if mask is not None:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def _reset_child() -> None:
    if _is(_terminate):
        _set(_signal.SIG_DFL)
    _unblock_sigterm()
    _masks.clear()


_masks: dict[int, Any] = {}
"""By thread: its signal mask before the fork."""
os.register_at_fork(
    before=_block_sigterm, after_in_parent=_unblock_sigterm, after_in_child=_reset_child
)
