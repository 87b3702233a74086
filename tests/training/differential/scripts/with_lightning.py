# SPDX-License-Identifier: Apache-2.0
"""Trains with the Lightning Trainer: validation, accumulated gradients, checkpoints, a stream."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

warnings.filterwarnings("ignore")


class Line(lightning.LightningModule):
    """A line through noise."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        return ((self.line(x) - y) ** 2).mean()

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("loss", self.training_step(batch, index))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Stream(IterableDataset[Any]):
    """Data of unknown length: the Trainer finds its end before it trains on the last batch."""

    def __iter__(self) -> Iterator[Any]:
        return iter(DATA)


def train(data: DataLoader[Any], held_out: DataLoader[Any], accumulated: int) -> None:
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        accumulate_grad_batches=accumulated,
        default_root_dir="checkpoints",
    )
    model = Line()
    trainer.fit(model, data, held_out)
    print(trainer.global_step, f"{sum(float(p.sum()) for p in model.parameters()):.9f}")


lightning.seed_everything(0)
DATA = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
HELD_OUT = DataLoader(DATA, 16)
train(DataLoader(DATA, 8, num_workers=1), HELD_OUT, 2)
train(DataLoader(Stream(), 8), HELD_OUT, 1)
train(DataLoader(Stream(), 8), HELD_OUT, 3)
