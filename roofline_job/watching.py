# SPDX-License-Identifier: Apache-2.0
"""What `watch` returns: the job's own iterable in every respect, except that iterating is timed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import repeat
from types import WrapperDescriptorType
from typing import Any, TypeVar, cast

from .failures import failed
from .loops import Stated, hooks

Batch = TypeVar("Batch")

_BINARY = (
    *("add", "and", "divmod", "floordiv", "lshift", "matmul", "mod", "mul", "or", "pow"),
    *("rshift", "sub", "truediv", "xor"),
)

PASSED_ON = (
    "__abs__",
    "__bool__",
    "__call__",
    "__complex__",
    "__contains__",
    "__delitem__",
    "__dir__",
    "__enter__",
    "__eq__",
    "__exit__",
    "__float__",
    "__format__",
    "__ge__",
    "__getitem__",
    "__gt__",
    "__hash__",
    "__index__",
    "__int__",
    "__invert__",
    "__le__",
    "__len__",
    "__length_hint__",
    "__lt__",
    "__ne__",
    "__neg__",
    "__pos__",
    "__repr__",
    "__reversed__",
    "__setitem__",
    "__str__",
    *(f"__{side}{name}__" for name in _BINARY for side in ("", "r", "i")),
)
"""Special methods, which Python looks for in the class and not in the object."""

IMMUTABLE_TYPE, HEAP_TYPE = 1 << 8, 1 << 9
"""Of a class's flags (Py_TPFLAGS_…): a class statement makes one that has the second alone."""

_set = object.__setattr__
_get = object.__getattribute__
_NOTHING = object()
_classes: dict[tuple[str, tuple[str, ...], tuple[str, ...]], type[Watched]] = {}


def watch(
    iterable: Iterable[Batch],
    *,
    job: str | None = None,
    rank: int | None = None,
    samples_per_batch: float | Callable[[Batch], float] | None = None,
    flops_per_step: float | None = None,
    flops_per_sample: float | None = None,
    precision: str | None = None,
) -> Iterable[Batch]:
    """Return the same iterable; a loop over it tells how long it waits for each batch.

    What comes back behaves as what was given: length, attributes and special methods are the
    original's, each loop asks it for an iterator of its own, and what it raises is raised.

    Args:
        iterable: a data loader, or whatever else the training loop goes through.
        job: the name in the metrics; by default the first one that this process gave, else
            ROOFLINE_JOB_NAME, SLURM_JOB_NAME, or the name of the script.
        rank: by default torch.distributed's, or that of the launcher's variables.
        samples_per_batch: how many samples a batch has, or a function of the batch that says so.
        flops_per_step: the FLOPs that the model needs for a step, forward and backward.
        flops_per_sample: the same for a sample; counts together with samples_per_batch.
        precision: what the model computes in, as ``bf16``.
    """
    try:
        if not hasattr(type(iterable), "__iter__") and not hasattr(type(iterable), "__getitem__"):
            return iterable
        stated = Stated(
            job, rank, samples_per_batch, flops_per_step, flops_per_sample, precision
        ).checked()
        return cast("Iterable[Batch]", _stand_in(iterable, id(iterable), stated))
    except Exception as error:
        failed(error)
        return iterable


class Watched:
    """Stands in for an iterable.

    The special methods that the iterable has are slots of a subclass and hold the iterable's own
    bound methods, so that Python finds them where it looks for them and calls them directly.
    """

    __slots__ = ("__weakref__", "_roofline_original")

    def __getattribute__(self, name: str) -> Any:
        return getattr(_get(self, "_roofline_original"), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(_get(self, "_roofline_original"), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_get(self, "_roofline_original"), name)


class _Bare:
    """An iterator by its next() alone: making it an iterator again calls nothing of the job's."""

    __slots__ = ("__next__",)

    def __init__(self, iterator: Any) -> None:
        _set(self, "__next__", partial(next, iterator))

    def __iter__(self) -> Any:
        return self


def _stand_in(original: Any, key: int, stated: Stated) -> Watched:
    """Return what stands in for an iterable or an iterator.

    An iterator stands in for itself when it is asked for one, as it would without us. Anything
    else is asked anew each time, by C code, so that what it raises has no frame of ours.
    """
    kind = type(original)
    methods = _methods(original, kind)
    if hasattr(kind, "__next__"):
        begin, end = hooks(original, key, stated)
        direct = isinstance(getattr(kind, "__iter__", None), WrapperDescriptorType)
        iterator: Any = original if direct else _Bare(original)
        methods["__next__"] = map(end, iter(begin, _NOTHING), iterator).__next__
    stand_in = _class(_name(kind), methods)()
    _set(stand_in, "_roofline_original", original)
    this = weakref.ref(stand_in)

    def iteration(iterator: Any) -> Any:
        try:
            return this() if iterator is original else _stand_in(iterator, key, stated)
        except Exception as error:
            failed(error)
            return iterator

    methods["__iter__"] = map(iteration, map(iter, repeat(original))).__next__
    for name, method in methods.items():
        if method is not None:
            _set(stand_in, name, method)
    return stand_in


def _methods(original: object, kind: type) -> dict[str, Any]:
    """Return the special methods of an object: those that its class has, bound to it.

    Neither what the object itself holds under such a name nor what its metaclass has counts.
    """
    names = set().union(*map(vars, kind.__mro__))
    methods = {}
    for name in PASSED_ON:
        if name in names:
            method = next(vars(base)[name] for base in kind.__mro__ if name in vars(base))
            bind = getattr(type(method), "__get__", None)
            methods[name] = method if bind is None else bind(method, original, kind)
    return methods


def _name(kind: type) -> str:
    """Return what Python calls a class where it says what its objects cannot do."""
    made = kind.__flags__ & (IMMUTABLE_TYPE | HEAP_TYPE)
    if made == HEAP_TYPE or kind.__module__ == "builtins":
        return kind.__name__
    return f"{kind.__module__}.{kind.__name__}"


def _class(name: str, methods: Mapping[str, object]) -> type[Watched]:
    """Return the class whose slots are these special methods; one that is None stays None."""
    slots = (*(name for name, method in methods.items() if method is not None), "__iter__")
    nones = tuple(name for name, method in methods.items() if method is None)
    known = _classes.get((name, slots, nones))
    if known is None:
        members = {"__slots__": slots, **dict.fromkeys(nones)}
        known = _classes[name, slots, nones] = type(name, (Watched,), members)
    return known
