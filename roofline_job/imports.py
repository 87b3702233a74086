# SPDX-License-Identifier: Apache-2.0
"""Calls a function right after a module was executed, whoever imports it and whenever.

Nothing of the module changes: its spec, loader and source are the import system's own, and no
frame of this file is on the stack while it is executed, so that the traceback of a module that
fails is what it would be without us. How: the import system marks a module as being initialised on
its spec (``_initializing``) and takes the mark off once the module was executed; for the time in
between, the spec's class is one that notices.

Imported at the start of every Python of an instrumented job, before the job can put modules of its
own in front of the standard library's. So it imports only what the interpreter itself has loaded.
"""

from __future__ import annotations

import sys
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Callback = Callable[[ModuleType], object]
else:
    ModuleSpec = type(sys.__spec__)

_MARK = "_initializing"


class _Watched(ModuleSpec):
    """A spec that tells when its module was executed, and then is an ordinary one again."""

    @property
    def _initializing(self) -> Any:
        return self.__dict__.get(_MARK, False)

    @_initializing.setter
    def _initializing(self, mark: Any) -> None:
        if not mark and self.__dict__.get(_MARK):
            # An assignment to ``__class__`` is what mypy cannot follow.
            object.__setattr__(self, "__class__", ModuleSpec)
            _executed(self.name)
        self.__dict__[_MARK] = mark


_Watched.__name__ = _Watched.__qualname__ = ModuleSpec.__name__  # what its repr shows


class Finder:
    """Finds what the finders behind it find, and has the listed modules' specs watched."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callback]] = {}
        self._searching: set[tuple[str, int]] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a listed module as the others make it; of any other module None."""
        if name not in self.callbacks:
            return None
        # A finder behind this one may search in turn, and that comes back here.
        search = (name, get_ident())
        if search in self._searching:
            return None
        self._searching.add(search)
        try:
            spec = self._ask_others(name, path, target)
        except Exception:  # the import system asks them next, and reports it as its own
            return None
        finally:
            self._searching.discard(search)
        if spec is not None:
            _watch(spec)
        return spec

    def _ask_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in tuple(sys.meta_path):
            ask = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = ask(name, path, target) if ask is not None else None
            if spec is not None:
                return spec
        return None


_finder = Finder()


def after_import(callbacks: Mapping[str, Callback]) -> None:
    """Call each function with its module: now if that was executed, else once it has been.

    What a callback raises is dropped: an import never fails for it.
    """
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    for name, callback in callbacks.items():
        _finder.callbacks.setdefault(name, []).append(callback)
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        if not (getattr(spec, _MARK, False) and _watch(spec)):
            _call((callback,), module)


def _watch(spec: Any) -> bool:
    """Have this spec tell; False where it is of a class of somebody's own."""
    if type(spec) is ModuleSpec:
        spec.__class__ = _Watched
    return type(spec) is _Watched


def _executed(name: str) -> None:
    """Call what waits for a module; it stays listed, for a job that imports it anew."""
    _call(_finder.callbacks.get(name, ()), sys.modules.get(name))


def _call(callbacks: Sequence[Callback], module: ModuleType | None) -> None:
    """Call each with the module, if there is one: a module that failed has been taken out."""
    if module is None:
        return
    for callback in tuple(callbacks):
        _call_safely(callback, module)


def _call_safely(callback: Callback, module: ModuleType) -> None:
    try:
        callback(module)
    except Exception:  # the import goes on; callbacks account for their own failures
        return
