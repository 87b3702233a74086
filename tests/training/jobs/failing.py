# SPDX-License-Identifier: Apache-2.0
"""Fails in the ways in which jobs do, each in a process of its own."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

DATA = TensorDataset(torch.arange(6))


class Bad(Dataset[Any]):
    """Raises at its third sample."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise ValueError(f"sample {index} is broken")
        return torch.zeros(2)


class Longer(IterableDataset[Any]):
    """Says that it has fewer samples than it has, which PyTorch warns of."""

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "Longer()"

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.zeros(3, 2))


def in_the_main_process() -> None:
    for _ in DataLoader(Bad(), 2):
        pass


def in_a_worker() -> None:
    for _ in DataLoader(Bad(), 2, num_workers=1):
        pass


def in_the_body() -> None:
    for _ in DataLoader(DATA, 2):
        raise RuntimeError("the body")


def leaves() -> None:
    for _ in DataLoader(DATA, 2):
        sys.exit(4)


def interrupted() -> None:
    for _ in DataLoader(DATA, 2):
        raise KeyboardInterrupt


def caught_and_logged() -> None:
    logging.basicConfig(format="%(levelname)s %(message)s")
    try:
        for _ in DataLoader(Bad(), 2):
            pass
    except ValueError:
        logging.exception("goes on")
    batches = iter(DataLoader(DATA, 6))
    next(batches)
    try:
        next(batches)
    except StopIteration:
        logging.exception("the end")


def during_another() -> None:
    try:
        in_the_main_process()
    except ValueError as error:
        raise RuntimeError("no data") from error


def warned() -> None:
    loader = DataLoader(Longer())
    len(loader)
    warnings.simplefilter("always")
    for _ in loader:
        pass


def saves_nowhere() -> None:
    for _ in DataLoader(DATA, 2):
        torch.save(torch.zeros(1), "no/such/folder/model.pt")


def saves_what_cannot_be() -> None:
    for _ in DataLoader(DATA, 2):
        torch.save(lambda: None, "model.pt")


def loss_fails_in_autocast() -> None:
    for _ in DataLoader(DATA, 2):
        with torch.autocast("cpu"):
            torch.zeros(2, 3) @ torch.zeros(2, 3)


def optimizer_fails() -> None:
    optimizer = torch.optim.LBFGS([torch.zeros(1, requires_grad=True)])
    for _ in DataLoader(DATA, 2):
        optimizer.step()


SCENARIOS: tuple[Callable[[], None], ...] = (
    in_the_main_process,
    in_a_worker,
    in_the_body,
    leaves,
    interrupted,
    caught_and_logged,
    during_another,
    warned,
    saves_nowhere,
    saves_what_cannot_be,
    loss_fails_in_autocast,
    optimizer_fails,
)


def main() -> None:
    for scenario in SCENARIOS:
        print(scenario.__name__, flush=True)
        child = os.fork()
        if not child:
            scenario()
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        print("exit", os.waitstatus_to_exitcode(status), flush=True)


main()
sys.exit(3)
