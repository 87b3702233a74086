# SPDX-License-Identifier: Apache-2.0
"""Trains in the ways in which PyTorch scripts do, and counts for itself what it did."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

SAMPLES, BATCH = 40, 8
COUNTED: dict[str, float] = {"steps": 0, "batches": 0, "samples": 0, "data": 0, "checkpoint": 0}

torch.manual_seed(0)
PAIRS = TensorDataset(torch.randn(SAMPLES, 4), torch.randn(SAMPLES, 1))
MODEL = torch.nn.Linear(4, 1)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)


class Stream(IterableDataset[Any]):
    """A dataset of unknown length, shared out among the workers."""

    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, SAMPLES, stride):
            yield PAIRS[index]


def asking(loader: DataLoader[Any], *, counts: bool = True) -> Iterator[Any]:
    """Iterate as ``for`` does, with a clock around each ``next()``."""
    batches = iter(loader)
    while True:
        begin = time.perf_counter()
        try:
            batch = next(batches)
        except StopIteration:
            return
        finally:
            COUNTED["data"] += time.perf_counter() - begin
        if counts:
            COUNTED["batches"] += 1
            COUNTED["samples"] += len(batch[0])
        yield batch


def loss(batch: Any, model: torch.nn.Module = MODEL) -> torch.Tensor:
    x, y = batch
    return ((model(x) - y) ** 2).mean()


def learn(batch: Any) -> None:
    OPTIMIZER.zero_grad()
    loss(batch).backward()
    OPTIMIZER.step()
    COUNTED["steps"] += 1


def save(name: str) -> None:
    begin = time.perf_counter()
    torch.save({"model": MODEL.state_dict(), "optimizer": OPTIMIZER.state_dict()}, name)
    COUNTED["checkpoint"] += time.perf_counter() - begin


def workers() -> None:
    for number in (0, 1, 2):
        for batch in asking(DataLoader(PAIRS, BATCH, shuffle=True, num_workers=number)):
            learn(batch)
    for batch in asking(DataLoader(PAIRS, BATCH, num_workers=4, in_order=False)):
        COUNTED["steps"] += 1
        OPTIMIZER.zero_grad()
        (loss(batch) * 0).backward()  # the order of batches must not matter
        OPTIMIZER.step()


def persistent() -> None:
    loader = DataLoader(PAIRS, BATCH, num_workers=1, persistent_workers=True)
    for _ in range(2):
        for batch in asking(loader):
            learn(batch)
    for batch in asking(loader):
        learn(batch)
        break


def streams() -> None:
    for number in (0, 2):
        for batch in asking(DataLoader(Stream(), BATCH, num_workers=number)):
            learn(batch)


def evaluation() -> None:
    loader = DataLoader(PAIRS, BATCH)
    for batch in asking(loader):
        learn(batch)
        with torch.no_grad():
            total = sum(float(loss(one)) for one in asking(loader, counts=False))
    print(f"evaluated {total:.6f}")


class Ahead:
    """Asks for each batch before the one before it is used, as prefetchers to the GPU do."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.batches = asking(loader)
        self.following = next(self.batches, None)

    def next(self) -> Any:
        batch = self.following
        self.following = next(self.batches, None)
        return batch


def prefetcher() -> None:
    ahead = Ahead(DataLoader(Stream(), BATCH))
    while (batch := ahead.next()) is not None:
        learn(batch)


def accumulation() -> None:
    def step() -> None:
        OPTIMIZER.step()
        OPTIMIZER.zero_grad()
        COUNTED["steps"] += 1

    for index, batch in enumerate(asking(DataLoader(PAIRS, BATCH, drop_last=True))):
        loss(batch).backward()
        if index % 2:
            step()
    step()  # the last batch is left over


def adversaries() -> None:
    critic = torch.nn.Linear(4, 1)
    other = torch.optim.Adam(critic.parameters(), lr=0.1)
    for batch in asking(DataLoader(PAIRS, BATCH)):
        other.zero_grad()
        loss(batch, critic).backward()
        other.step()
        learn(batch)


def mixed_precision() -> None:
    for batch in asking(DataLoader(PAIRS, BATCH)):
        OPTIMIZER.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = MODEL(batch[0])
        ((output.float() - batch[1]) ** 2).mean().backward()
        OPTIMIZER.step()
        COUNTED["steps"] += 1


class Words(Dataset[str]):
    """A dataset without tensors."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> str:
        return "abc"[index]


def main() -> None:
    torch.save(torch.zeros(1), "before.pt")  # no checkpoint of a training that has begun
    for scenario in (
        workers,
        persistent,
        streams,
        evaluation,
        prefetcher,
        accumulation,
        adversaries,
        mixed_precision,
    ):
        scenario()
        save(f"{scenario.__name__}.pt")
        print(f"{scenario.__name__} {sum(float(p.sum()) for p in MODEL.parameters()):.9f}")
    with torch.no_grad():
        print("".join(word for batch in DataLoader(Words()) for word in batch))


if __name__ == "__main__":
    main()
    with open("counted.json", "w", encoding="ascii") as file:
        json.dump(COUNTED, file)
