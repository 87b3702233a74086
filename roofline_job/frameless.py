# SPDX-License-Identifier: Apache-2.0
"""Runs something before and after a call of the job's, without a frame on the stack during it.

A wrapper of the usual kind would be visible: as a line in every traceback that passes it, and as
the place that ``warnings.warn(..., stacklevel=2)`` blames. Here only C code stands between the
caller and the function. Looking the callable up runs what comes before; it returns an object of
C code that makes the call, and whose end is what comes after. CPython drops that object when the
call is over, however it ended.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any

Begin = Callable[[], Callable[[], object] | None]
"""What comes before a call; it returns what comes after it, None for nothing. Never raises."""


class _Call(functools.partial[Any]):
    """One call of a function; ``after`` is called when it is over."""

    after: Callable[[], object]

    def __del__(self) -> None:
        self.after()


class _Calling:
    """The ``__call__`` of a stand-in: begins, then hands over what calls the function."""

    def __get__(self, stand_in: StandIn, owner: type[StandIn]) -> Callable[..., Any]:
        after = stand_in.begin()
        if after is None:
            return stand_in.__wrapped__
        call = _Call(stand_in.__wrapped__)
        call.after = after
        return call


class Lookalike:
    """Looks and pickles like a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        this: Any = self
        functools.update_wrapper(this, function)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    @property  # type: ignore[misc] # typeshed: it can be set
    def __class__(self) -> Any:
        """The function's, for ``isinstance``."""
        return type(self.__wrapped__)

    __wrapped__: Callable[..., Any]
    __qualname__: str


class StandIn(Lookalike):
    """Takes the place of a function in its module, or of a method in its class."""

    __call__ = _Calling()

    def __init__(self, function: Callable[..., Any], begin: Begin) -> None:
        self.begin = begin
        super().__init__(function)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)
