# SPDX-License-Identifier: Apache-2.0
"""Loops of every kind."""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from tests.training.differential.own import Own, Pairs, Stream, cases, watched

SECONDS, BODY = 0.005, 0.02


def loader(samples: int = 48, **options: Any) -> Any:
    return watched(DataLoader(Pairs(samples, SECONDS), 4, **options))


def while_next() -> None:
    own = Own(BODY)
    batches = own.iterate(loader())
    while True:
        try:
            batch = own.ask(next, batches)
        except StopIteration as end:
            print("end", end.args, end.value)
            break
        own.learn(batch)
    own.expect()


def zipped() -> None:
    """The two of a pair are one batch for one step; its samples count once."""
    own = Own(BODY)
    own.asks()
    for batch, (x, _) in zip(loader(), loader(), strict=True):
        own.got(batch)
        own.learn((x, batch[1]))
        own.asks()
    own.over()
    own.batches = None  # one each
    own.expect()


def zipped_unlike() -> None:
    """The shorter one ends the loop, after the longer one was asked once more."""
    own = Own(BODY)
    own.asks()
    for batch, _ in zip(loader(48), loader(32), strict=False):
        own.got(batch)
        own.learn(batch)
        own.asks()
    own.over()
    own.expect(counted=False, share=False)


def sliced() -> None:
    own = Own(BODY)
    own.train(itertools.islice(loader(), 7))
    own.expect(share=False)


def chained() -> None:
    own = Own(BODY)
    own.train(itertools.chain(loader(20), loader(24)))
    own.expect()


def nested() -> None:
    """A loop in the body of another: both train."""
    own = Own()
    for batch in own.each(DataLoader(Pairs(8), 4)):
        own.learn(batch)
        for inner in DataLoader(Pairs(12), 4):
            own.learn(inner)
    own.expect(counted=False, clock=False)


def broken_off() -> None:
    own = Own(BODY)
    for epoch in range(3):
        own.asks()
        for batch in loader():
            own.got(batch)
            if own.batches % 7 == 6:
                break
            own.learn(batch)
            own.asks()
        print(epoch, own.batches)
    own.expect(counted=False, share=False)


def persistent_twice() -> None:
    own = Own(BODY)
    one = loader(num_workers=1, persistent_workers=True)
    for _ in range(2):
        own.train(one)
    own.expect()


def interleaved() -> None:
    """Two iterators of one loader, taken from in turn."""
    own, one = Own(BODY), loader(24)
    first, second = own.iterate(one), own.iterate(one)
    for _ in range(6):
        own.learn(own.ask(next, first))
        own.learn(own.ask(next, second))
    own.expect(share=False)


def unsized() -> None:
    own = Own(BODY)
    own.train(watched(DataLoader(Stream(48, SECONDS), 4)))
    own.expect()


def whole_samples() -> None:
    """No batches but samples: ``batch_size=None``."""
    own = Own(BODY)
    for x, y in watched(DataLoader(Pairs(12, SECONDS), batch_size=None)):
        own.learn((x[None], y[None]))
    own.expect(counted=False, clock=False)


class Inner(Dataset[Any]):
    """Reads its samples by a loader of its own."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        return next(iter(DataLoader(Pairs(48, SECONDS), 1, sampler=[index])))


def loader_in_dataset() -> None:
    own = Own(BODY)
    for x, y in own.each(watched(DataLoader(Inner(), 4))):
        own.learn((x[:, 0], y[:, 0]))
    own.expect()


def one_at_a_time() -> None:
    """A new iterator for each step, which nothing keeps."""
    own, one = Own(), loader(24)
    for _ in range(6):
        batch = own.ask(lambda: next(iter(one)))
        time.sleep(BODY)
        own.learn(batch)
    own.over()
    own.expect()


class Ahead:
    """Asks for each batch before the one before it is used, as prefetchers to the GPU do."""

    def __init__(self, own: Own, batches: Any) -> None:
        self.own, self.batches = own, own.iterate(batches)
        self.preload()

    def preload(self) -> None:
        try:
            self.following = self.own.ask(next, self.batches)
        except StopIteration:
            self.following = None

    def next(self) -> Any:
        batch = self.following
        self.preload()
        return batch


def prefetched() -> None:
    own = Own(BODY)
    ahead = Ahead(own, loader())
    batch = ahead.next()
    while batch is not None:
        own.learn(batch)
        batch = ahead.next()
    own.expect()


def unpacked() -> None:
    """All batches first, training then."""
    own = Own(BODY)
    first, *rest = loader()
    for batch in (first, *rest):
        own.learn(batch)
    own.expect(counted=False, clock=False)


def empty() -> None:
    own = Own()
    own.train(watched(DataLoader(Stream(0), 4)))
    print(list(DataLoader([], 4)))
    own.train(watched(DataLoader(Pairs(8), 4)))
    own.expect(clock=False)


def collated() -> None:
    """Batches of the job's own kind, with a generator and a sampler of its own."""

    def together(pairs: list[Any]) -> dict[str, Any]:
        return {"x": torch.stack([x for x, _ in pairs]), "y": torch.stack([y for _, y in pairs])}

    own = Own()
    generator = torch.Generator().manual_seed(5)
    sampler = torch.utils.data.RandomSampler(Pairs(), generator=generator)
    for batch in DataLoader(Pairs(), 5, sampler=sampler, collate_fn=together, drop_last=True):
        own.learn((batch["x"], batch["y"]))
    own.expect(counted=False, clock=False)


def without_a_shape() -> None:
    """Nested tensors, of which it is not known how many samples they have."""
    own = Own()
    nested = watched(
        DataLoader(Pairs(), 4, collate_fn=lambda pairs: torch.nested.nested_tensor([*pairs[0]]))
    )
    for batch in nested:
        own.batches += 1
        own.learn((batch.to_padded_tensor(0)[:1], torch.ones(1, 1)))
    own.samples = None
    own.expect(clock=False)


cases()
