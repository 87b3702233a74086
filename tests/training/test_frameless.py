# SPDX-License-Identifier: Apache-2.0
"""A function that something takes the place of behaves, fails and looks as before."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import traceback
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from roofline_job.frameless import StandIn

CALLS: list[str] = []


def original(value: int, *, factor: int = 2) -> int:
    """Multiply, unless it is 13."""
    CALLS.append("call")
    warnings.warn("asked", stacklevel=2)
    if value == 13:
        raise ValueError(value)
    return value * factor


def plain(value: int, *, factor: int = 2) -> int:
    """Be the name by which the stand-in is pickled."""
    return value * factor


def begin() -> Callable[[], object]:
    CALLS.append("before")
    return lambda: CALLS.append("after")


stand_in: Any = StandIn(original, begin)


@pytest.fixture(autouse=True)
def _clean() -> None:
    CALLS.clear()


def traceback_of(call: Callable[..., Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="13") as caught:
            call(13)
    return "".join(traceback.format_exception(caught.value.with_traceback(caught.tb)))


def test_it_runs_before_and_after() -> None:
    """Arguments and the result go through; after comes when the call is over."""
    with pytest.warns(UserWarning, match="asked"):
        assert stand_in(3, factor=5) == 15
    assert CALLS == ["before", "call", "after"]


def test_exceptions_pass_without_a_line_of_ours() -> None:
    """And what comes after still does."""
    assert traceback_of(stand_in) == traceback_of(original)
    assert CALLS == ["before", "call", "after", "call"]


def test_warnings_blame_the_caller() -> None:
    """`stacklevel=2` is whoever called the function, in this file."""
    with pytest.warns(UserWarning, match="asked") as caught:
        stand_in(1)
    assert caught[0].filename == __file__


def test_nothing_comes_after_where_nothing_was_begun() -> None:
    """Begin may decline."""
    quiet: Any = StandIn(original, lambda: None)
    with pytest.warns(UserWarning, match="asked"):
        assert quiet(2) == 4
    assert CALLS == ["call"]


def test_calls_inside_calls_end_in_order() -> None:
    """Each call has its own end, the inner one first."""
    depth: list[str] = []

    def begin_at() -> Callable[[], object]:
        name = f"call {len(depth)}"
        depth.append(name)
        return lambda: depth.append(f"end of {name}")

    def recurse(times: int) -> None:
        if times:
            again(times - 1)

    again: Any = StandIn(recurse, begin_at)
    again(1)

    assert depth == ["call 0", "call 1", "end of call 1", "end of call 0"]


def test_it_looks_like_the_function() -> None:
    """What asks about functions gets the function's answers."""
    assert isinstance(stand_in, types.FunctionType)
    assert callable(stand_in)
    assert inspect.signature(stand_in) == inspect.signature(original)
    assert inspect.getsource(stand_in) == inspect.getsource(original)
    assert (stand_in.__name__, stand_in.__doc__) == (original.__name__, original.__doc__)
    assert stand_in.__code__ is original.__code__
    assert repr(stand_in) == repr(original)
    assert functools.wraps(stand_in)(lambda: None).__name__ == "original"


def test_it_pickles_and_copies_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process pool gets it as it gets any function."""
    taking_its_place: Any = StandIn(plain, begin)
    monkeypatch.setitem(globals(), "plain", taking_its_place)

    assert pickle.loads(pickle.dumps(taking_its_place)) is taking_its_place
    assert copy.deepcopy(taking_its_place) is taking_its_place


def test_in_a_class_it_is_a_method() -> None:
    """It binds as functions do."""

    class Holder:
        method = StandIn(lambda self, value: (self, value), begin)

    holder = Holder()
    assert holder.method(1) == (holder, 1)
    assert Holder.method is vars(Holder)["method"]
