# SPDX-License-Identifier: Apache-2.0
"""Keeps torch.compile away from the client's own functions.

Between two compiled parts of a job Dynamo tries to compile every Python function that is called,
so also what the client does there: it costs seconds, and what cannot be traced is warned about. The
interpreter's hook is told to leave these functions alone, with all that they call. Where the job's
compiled code itself reaches one of them, the function returns at once (see ``compiling``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

_marked: set[str] = set()


def compiling() -> bool:
    """Return whether Dynamo is tracing this very call: then nothing may happen here."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    is_compiling = getattr(compiler, "is_compiling", None)  # torch 2.0 has none
    return is_compiling is not None and is_compiling()


def leave_alone() -> None:
    """Have the client's functions left alone: those of its modules that are loaded by now."""
    skip = _skip()
    if skip is None:
        return
    package = sys.modules[__name__.rpartition(".")[0]]
    for module in tuple(vars(package).values()):
        if not isinstance(module, ModuleType) or module.__name__ in _marked:
            continue
        if module.__name__.startswith(f"{package.__name__}."):
            _marked.add(module.__name__)
            for code in codes(module, module.__name__):
                skip(code)


def codes(owner: ModuleType | type, module: str) -> Iterator[CodeType]:
    """Yield the code of the functions that a module defines, also in classes and functions."""
    for value in tuple(vars(owner).values()):
        if isinstance(value, type):
            if value.__module__ == module:
                yield from codes(value, module)
            continue
        getters = (value.fget, value.fset) if isinstance(value, property) else (value,)
        for getter in getters:
            function = getattr(getter, "__func__", getter)
            if isinstance(function, FunctionType) and function.__module__ == module:
                yield from _with_inner(function.__code__)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def _skip() -> Callable[[CodeType], object] | None:
    """Return what makes Dynamo leave code alone in this version of torch."""
    hook: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    if hook is None:
        return None
    if hasattr(hook, "set_code_exec_strategy"):
        skip = hook._FrameAction.SKIP
        strategy = hook._FrameExecStrategy(skip, skip)
        return lambda code: hook.set_code_exec_strategy(code, strategy)
    older: Callable[[CodeType], object] | None = getattr(hook, "skip_code", None)
    return older
