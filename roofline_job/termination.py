# SPDX-License-Identifier: Apache-2.0
"""SIGTERM where the job leaves it to the kernel: something is done before it ends the process.

The job does not see the handler: functions of its module ``signal`` say SIG_DFL in its place, and a
forked child does not have it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from .wrapping import replace

_signal: Any = sys.modules["_signal"]
_finish: Callable[[], object] = lambda: None  # noqa: E731 # as the function that takes its place


def before_termination(finish: Callable[[], object]) -> None:
    """Call a function before SIGTERM ends this process; not if the job handles the signal.

    Only the main thread can have that.
    """
    global _finish
    module = sys.modules.get("signal")
    if module is not None and _is(_signal.SIG_DFL):
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
    def hidden(*args: Any, **kwargs: Any) -> Any:
        handler = original(*args, **kwargs)
        return sys.modules["signal"].SIG_DFL if handler is _terminate else handler

    return hidden


def _is(handler: object) -> bool:
    return bool(_signal.getsignal(_signal.SIGTERM) == handler)


def _set(handler: object) -> None:
    try:
        _signal.signal(_signal.SIGTERM, handler)
    except ValueError:  # another thread than the main one
        return


def _lift() -> None:
    """Take it off before a fork: a signal that meets a child in between would be lost."""
    global _lifted
    _lifted = _is(_terminate)
    if _lifted:
        _set(_signal.SIG_DFL)


_lifted = False
os.register_at_fork(
    before=_lift,
    after_in_parent=lambda: _set(_terminate) if _lifted else None,
    after_in_child=_lift,
)
