# SPDX-License-Identifier: Apache-2.0
"""Trains with Accelerate, whose loaders ask for one batch ahead."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=1)
line = torch.nn.Linear(4, 1)
model, optimizer, loader = accelerator.prepare(
    line, torch.optim.SGD(line.parameters(), lr=0.1), DataLoader(data, 8)
)
for _ in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(((model(x) - y) ** 2).mean())
        optimizer.step()
accelerator.save_model(model, "model")
print(f"{sum(float(p.sum()) for p in model.parameters()):.9f}")
