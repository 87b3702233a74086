# SPDX-License-Identifier: Apache-2.0
"""`watch`: times the iteration of a data loader or any other iterable."""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from . import torch_hooks
from .degraded import WATCH
from .loops import NO_BATCH, Loop, Stated
from .wrapping import compiling

Batch = TypeVar("Batch")

FORWARDED = (
    "__bool__",
    "__call__",
    "__contains__",
    "__delitem__",
    "__dir__",
    "__enter__",
    "__exit__",
    "__getitem__",
    "__len__",
    "__length_hint__",
    "__repr__",
    "__reversed__",
    "__setitem__",
)
"""Special methods, which Python looks for in the class; a wrapper has those of the original."""

_set = object.__setattr__


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
    """Return the same iterable; a loop over it reports how long it waits for each batch.

    A PyTorch data loader comes back itself: every loop over it is measured from then on. Anything
    else comes back in a wrapper that passes on its length, items, attributes and exceptions.

    Args:
        iterable: a data loader, or any other iterable that the training loop goes through.
        job: the name in the metrics; by default the first one that was named in this process, else
            ROOFLINE_JOB_NAME, else one made of the Slurm job or script and which run of it this is.
        rank: by default torch.distributed's, or that of the launcher's variables.
        samples_per_batch: how many samples a batch has, or a function of the batch that returns it.
        flops_per_step: the FLOPs that the model needs for a step, forward and backward.
        flops_per_sample: the same for a sample; counts together with samples_per_batch.
        precision: what the model computes in, as ``bf16``.
    """
    if not WATCH.on:
        return iterable
    try:
        if not hasattr(type(iterable), "__iter__") and not hasattr(type(iterable), "__getitem__"):
            return iterable
        stated = Stated(
            job, rank, samples_per_batch, flops_per_step, flops_per_sample, precision
        ).checked()
        if torch_hooks.mark(iterable, stated):
            return iterable
        return cast("Iterable[Batch]", _wrapped(iterable, stated))
    except Exception as error:
        WATCH.fail(error)
        return iterable


class Watched:
    """A wrapper around an iterable; copies and pickles of it are those of the iterable."""

    __slots__ = ("__weakref__", "_roofline_original", "_roofline_stated")

    _roofline_original: Any
    _roofline_stated: Stated

    def __init__(self, original: Any, stated: Stated) -> None:
        _set(self, "_roofline_original", original)
        _set(self, "_roofline_stated", stated)

    def __iter__(self) -> Iterator[Any]:
        original = self._roofline_original
        iterator = iter(original)
        try:
            return WatchedIterator(iterator, self._roofline_stated, original)
        except Exception as error:
            WATCH.fail(error)
            return iterator  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._roofline_original, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._roofline_original, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._roofline_original, name)

    def __copy__(self) -> Any:
        return copy.copy(self._roofline_original)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A function of the standard library that gives back the original alone.
        return operator.getitem, ((self._roofline_original,), 0)


class WatchedIterator(Watched):
    """A wrapper around an iterator."""

    __slots__ = ("_roofline_loop",)

    _roofline_loop: Loop

    def __init__(self, original: Any, stated: Stated, source: object) -> None:
        super().__init__(original, stated)
        loop = Loop(source, stated, WATCH)
        loop.ends_with(self)
        _set(self, "_roofline_loop", loop)
        if "torch" in sys.modules:
            torch_hooks.install()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        loop = self._roofline_loop
        wait = loop.begin_wait() if WATCH.on and not compiling() else None
        if wait is None:
            return next(self._roofline_original)
        batch = NO_BATCH
        try:
            batch = next(self._roofline_original)
            return batch
        finally:
            loop.end_wait(wait, batch)


_classes: dict[tuple[type, tuple[str, ...]], type[Watched]] = {}


def _wrapped(original: Any, stated: Stated) -> Watched:
    """Return the wrapper of a class that has the special methods which the original has."""
    kind = type(original)
    is_iterator = hasattr(kind, "__next__")
    base = WatchedIterator if is_iterator else Watched
    has = {name: member for owner in reversed(kind.__mro__) for name, member in vars(owner).items()}
    names = tuple(name for name in FORWARDED if has.get(name) is not None)
    made = _classes.get((base, names))
    if made is None:
        members = {"__slots__": (), **{name: _forwarding(name) for name in names}}
        made = _classes[base, names] = type(base.__name__, (base,), members)
    return made(original, stated, original) if is_iterator else made(original, stated)  # type: ignore[call-arg]


def _forwarding(name: str) -> Callable[..., Any]:
    def forward(self: Any, *args: Any) -> Any:
        original = self._roofline_original
        return getattr(type(original), name)(original, *args)

    forward.__name__ = forward.__qualname__ = name
    return forward
