# SPDX-License-Identifier: Apache-2.0
"""Loaders with workers: each epoch's start, persistent ones, what the report says of them."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils.data import DataLoader

from tests.training.differential.own import Own, Pairs, Stream, cases, watched

BODY = 0.02
LOADER: Any = DataLoader
"""The class of the loaders."""


def trained(epochs: int, data: Any = None, **options: Any) -> None:
    own = Own(BODY)
    one = watched(LOADER(data or Pairs(48, 0.006), 4, **options))
    for _ in range(epochs):
        own.train(one)
    settings = {"workers": options["num_workers"], "pin_memory": False}
    own.expect(loader=settings)


def two() -> None:
    trained(2, num_workers=2)


def persistent() -> None:
    trained(3, num_workers=2, persistent_workers=True)


def of_a_stream() -> None:
    trained(2, Stream(48, 0.006), num_workers=2)


def out_of_order() -> None:
    """Batches come as they are ready; what is learnt from them must not depend on it."""
    own = Own()
    one = watched(LOADER(Pairs(48, 0.002), 4, num_workers=2, in_order=False))
    for batch in own.each(one):
        own.optimizer.zero_grad()
        (own.loss(batch) * 0).backward()
        own.step()
    own.expect(clock=False)


def of_words() -> None:
    """Samples without any tensor: how many there are is not known."""
    own = Own()
    for words in own.each(watched(LOADER(list("abcdefgh"), 4, num_workers=1))):
        print(words)
        own.learn((torch.ones(4, 4), torch.ones(4, 1)))
    own.samples = None
    own.expect(clock=False)


def slow_to_start(worker: int) -> None:
    time.sleep(0.3)


def slow_start() -> None:
    """What workers do before their first batch is waited for at the beginning of each epoch."""
    trained(2, num_workers=1, worker_init_fn=slow_to_start)


def leave(own: Own, one: Any) -> None:
    """Learn from four batches, and leave the epoch with the fifth."""
    own.asks()
    for index, batch in enumerate(one):
        own.got(batch)
        if index == 4:
            break
        own.learn(batch)
        own.asks()


def reset_midway() -> None:
    """An epoch of persistent workers that is given up, and another one."""
    own = Own(BODY)
    one = watched(LOADER(Pairs(48, 0.006), 4, num_workers=1, persistent_workers=True))
    for _ in range(2):
        leave(own, one)
    own.expect(share=False)


if __name__ == "__main__":
    cases()
