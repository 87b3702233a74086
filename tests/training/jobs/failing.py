# SPDX-License-Identifier: Apache-2.0
"""Fails in the ways in which jobs do."""

from __future__ import annotations

import logging
import os
import sys
import traceback
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


def autocast_fails() -> None:
    for _ in DataLoader(DATA, 2):
        with torch.autocast("cpu"):
            torch.zeros(2, 3) @ torch.zeros(2, 3)


IN_ONE_PROCESS: tuple[Callable[[], None], ...] = (
    in_the_main_process,
    in_the_body,
    caught_and_logged,
    during_another,
    warned,
    saves_nowhere,
    saves_what_cannot_be,
    autocast_fails,
)
ENDING_THEIRS: tuple[Callable[[], None], ...] = (in_a_worker, leaves, interrupted)


def main() -> None:
    for scenario in IN_ONE_PROCESS:
        try:
            scenario()
        except Exception:
            traceback.print_exc()
    for scenario in ENDING_THEIRS:
        child = os.fork()
        if not child:
            scenario()
        _, status = os.waitpid(child, 0)
        print(scenario.__name__, os.waitstatus_to_exitcode(status), flush=True)
    during_another()


main()
