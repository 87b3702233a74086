# SPDX-License-Identifier: Apache-2.0
"""Replaces functions of the job by ordinary functions that call them; not in compiled code.

Dynamo traces what a function that it compiles calls, and between two graphs it tries to compile
each Python function that is called. What it cannot trace it warns about, in the job's output. So
every entry into the client asks `compiling` first, and then calls the original alone.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .exact_types import attribute
from .switches import debug

HOOKED = "_roofline_hooked"
"""The attribute that our functions have."""


def replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace a function of a class or module by `wrap(function)`, once."""
    original = getattr(owner, name)
    if not hasattr(original, HOOKED):
        wrapper = functools.wraps(original)(wrap(original))
        setattr(wrapper, HOOKED, True)
        setattr(owner, name, wrapper)
        debug(f"hooked {getattr(owner, '__module__', owner.__name__)}.{original.__qualname__}")


_is_compiling: Callable[[], bool] | None = None
"""PyTorch's own; Dynamo knows its answer while it traces, and sees nothing of what would follow."""
_callback: Callable[[], object] = lambda: None  # noqa: E731 # as the function that takes its place
"""What Dynamo compiles frames with in this thread; None outside functions that it compiles."""


def compiling() -> bool:
    """Return whether Dynamo is tracing this call, or runs it between two graphs."""
    if _is_compiling is None:
        return "torch" in sys.modules and _bind() and compiling()
    return _is_compiling() or _callback() is not None


def _bind() -> bool:
    """Look up PyTorch's functions; False as long as it is not imported."""
    global _is_compiling, _callback
    compiler = attribute(sys.modules["torch"], "compiler")
    frames: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    found = getattr(compiler, "is_compiling", None)
    if found is not None:
        _callback = getattr(frames, "get_eval_frame_callback", _callback)
        _is_compiling = found
    return found is not None
