# SPDX-License-Identifier: Apache-2.0
"""Trains with the Lightning Trainer: validation, accumulated gradients, checkpoints."""

from __future__ import annotations

import warnings
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

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


lightning.seed_everything(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
trainer = lightning.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    accumulate_grad_batches=2,
    default_root_dir="checkpoints",
)
model = Line()
trainer.fit(model, DataLoader(data, 8, num_workers=1), DataLoader(data, 16))
print(trainer.global_step, f"{sum(float(p.sum()) for p in model.parameters()):.9f}")
