# SPDX-License-Identifier: Apache-2.0
"""Import hooks: call a function right after a module was executed.

A finder at the front of ``sys.meta_path`` lets the finders behind it find the listed modules, and
puts an ordinary function in front of ``exec_module`` of the loader that they name, until the module
is executed. It can be seen in the traceback of a listed module that fails, and nowhere else.

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
    Missed = Callable[[str], object]


class Finder:
    """Finds modules by the finders behind it, and has the loaders of listed modules call back."""

    def __init__(self, callbacks: Mapping[str, Callback], missed: Missed) -> None:
        self._callbacks = callbacks
        self._missed = missed
        self._searching: set[tuple[str, int]] = set()
        self._executing: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a listed module as the others make it; of any other module None."""
        if name not in self._callbacks:
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
        if spec is not None and not self._call_after_execution(spec.loader, name):
            _call(self._missed, name)
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

    def _call_after_execution(self, loader: Any, name: str) -> bool:
        """Put a function in front of this loader's; return whether that was possible."""

        def exec_module(module: ModuleType) -> None:
            # A loader may be that of other modules too, as the one of a zip file is: then this is
            # called for those as well, and may have been put there twice for one.
            if getattr(module, "__name__", None) != name or name in self._executing:
                execute(module)
                return
            if vars(loader).get("exec_module") is exec_module:  # no other one in front of it
                if before is None:
                    del loader.exec_module
                else:
                    loader.exec_module = before
            self._executing.add(name)
            try:
                execute(module)
            finally:
                self._executing.discard(name)
            # A copy made outside sys.modules is not the job's module.
            if sys.modules.get(name) is module:
                _call(self._callbacks[name], module)

        if isinstance(loader, type):  # those of built-in and frozen modules are shared by all
            return False
        try:
            before = vars(loader).get("exec_module")
            execute = loader.exec_module
            loader.exec_module = exec_module
        except Exception:  # no such method, or an object that takes no attributes
            return False
        return True


def after_import(callbacks: Mapping[str, Callback], missed: Missed) -> None:
    """Call each function with its module: now if that was imported, else once it is executed. Where
    that is not possible, call `missed` with its name. What they raise is dropped."""
    sys.meta_path.insert(0, Finder(callbacks, missed))
    for name, callback in callbacks.items():
        module = sys.modules.get(name)
        if module is not None:
            _call(callback, module)


def _call(function: Callable[[Any], object], argument: object) -> None:
    try:
        function(argument)
    except Exception:  # the import goes on; callbacks account for their own failures
        return
