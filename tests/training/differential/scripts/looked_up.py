# SPDX-License-Identifier: Apache-2.0
"""``__next__`` looked up, kept, handed on and called in every way; or not called at all."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from tests.training.differential.own import Own, Pairs, cases, watched

SECONDS, BODY = 0.006, 0.024


def batches(**options: Any) -> Any:
    return iter(watched(DataLoader(Pairs(40, SECONDS), 4, **options)))


def train(make: Callable[[], Callable[[], Any]]) -> None:
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
    own.expect()


def kept() -> None:
    train(lambda: batches().__next__)


def of_the_base_class() -> None:
    def make() -> Callable[[], Any]:
        found = iter(DataLoader(Pairs(40, SECONDS), 4))
        return lambda: _BaseDataLoaderIter.__next__(found)

    train(make)


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
