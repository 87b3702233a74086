# SPDX-License-Identifier: Apache-2.0
"""``__next__`` looked up, kept, handed on and called in every way; or not called at all."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from tests.training.differential.own import Own, Pairs, cases, watched

SECONDS, BODY = 0.006, 0.024


def batches(**options: Any) -> Any:
    return iter(watched(DataLoader(Pairs(40, SECONDS), 4, **options)))


def train(make: Callable[[], Callable[[], Any]], *, samples: bool = True) -> None:
    """Take batches until there are no more."""
    own = Own(BODY)
    own.asks()
    following = make()
    while True:
        try:
            batch = own.ask(following)
        except StopIteration:
            break
        own.learn(batch)
    own.samples = own.samples if samples else None
    own.expect()


def kept() -> None:
    train(lambda: batches().__next__)


def of_the_base_class() -> None:
    def make() -> Callable[[], Any]:
        found = iter(DataLoader(Pairs(40, SECONDS), 4))
        return lambda: _BaseDataLoaderIter.__next__(found)

    train(make)


def by_map() -> None:
    own = Own(BODY)
    own.asks()
    own.train(map(next, itertools.repeat(batches())))
    own.expect()


def by_super() -> None:
    """An iterator of the job's own class, as libraries derive them."""

    class Counting(torch.utils.data.dataloader._SingleProcessDataLoaderIter):
        number = 0

        def __next__(self) -> Any:
            Counting.number += 1
            return super().__next__()

    class Loader(DataLoader[Any]):
        def _get_iterator(self) -> Any:
            return Counting(self)

    train(lambda: iter(Loader(Pairs(40, SECONDS), 4)).__next__)
    print(Counting.number)


def wrapped_by_the_job() -> None:
    """The job puts a function of its own around the class's, as profilers do."""
    inner = _BaseDataLoaderIter.__next__
    calls = 0

    @functools.wraps(inner)
    def counted(iterator: Any) -> Any:
        nonlocal calls
        calls += 1
        return inner(iterator)

    _BaseDataLoaderIter.__next__ = counted
    train(lambda: iter(DataLoader(Pairs(40, SECONDS), 4)).__next__)
    print(calls)


def put_back_by_the_job() -> None:
    """And takes it off again."""
    first = _BaseDataLoaderIter.__next__
    _BaseDataLoaderIter.__next__ = lambda iterator: first(iterator)
    found = batches()
    print(len(next(found)))
    _BaseDataLoaderIter.__next__ = first
    own = Own()
    for batch in found:
        own.learn(batch)
    own.expect(counted=False, clock=False)


def only_looked_at() -> None:
    """What is looked up and not called measures nothing: W would run on."""
    own = Own(BODY)
    own.asks()
    found = batches()
    for _ in range(10):
        print(hasattr(found, "__next__"), callable(found.__next__), bool(found.__next__), end=" ")
        kept = found.__next__
        print(inspect.ismethod(kept), kept == found.__next__, kept.__self__ is found)
        own.learn(own.ask(next, found))
        found.__next__  # noqa: B018 # the body runs after it
        own.learn((torch.ones(4, 4), torch.ones(4, 1)))
    own.steps = None  # of two for each batch, the second ones come in the same loop
    own.expect(share=False)


def kept_and_dropped() -> None:
    """A prefetcher's idiom: the method is kept, the call comes late."""

    class Prefetcher:
        def __init__(self, loader: Any) -> None:
            self.following = iter(loader).__next__

        def __iter__(self) -> Iterator[Any]:
            while True:
                try:
                    yield self.following()
                except StopIteration:
                    break

    own = Own(BODY)
    own.train(Prefetcher(watched(DataLoader(Pairs(40, SECONDS), 4))))
    own.expect()


def described() -> None:
    """What tools see of the method is what it is without us."""
    found = iter(DataLoader(Pairs(40), 4))
    for method in (found.__next__, type(found).__next__, _BaseDataLoaderIter.__next__):
        print(method.__name__, method.__qualname__, method.__module__, method.__doc__)
        print(inspect.signature(method), inspect.unwrap(method).__code__.co_name)
        print(inspect.isroutine(method), inspect.isfunction(getattr(method, "__func__", method)))
        print(inspect.getsource(method))
    print("__next__" in vars(_BaseDataLoaderIter), "__next__" in vars(type(found)))
    print(_BaseDataLoaderIter.__next__ is type(found).__next__)
    own = Own()
    own.train(found)
    own.expect(clock=False)


cases()
