# SPDX-License-Identifier: Apache-2.0
"""Trains compiled: parts of the step, the optimizer, a whole epoch; tells what Dynamo did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
compiled: Callable[..., Any] = torch.compile(backend="eager")
whole: Callable[..., Any] = torch.compile(backend="eager", fullgraph=True)


@whole
def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(x)
    return ((output.float() - y) ** 2).mean()


@compiled
def epoch() -> torch.Tensor:
    total = torch.zeros(())
    for x, y in DataLoader(data, 8):
        optimizer.zero_grad()
        value = ((model(x) - y) ** 2).mean()
        value.backward()
        optimizer.step()
        total = total + value.detach()
    torch.save(model.state_dict(), "epoch.pt")
    return total


@whole
def refused() -> None:
    torch.save(model.state_dict(), "refused.pt")


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


step = compiled(optimizer.step)
for x, y in DataLoader(data, 8):
    optimizer.zero_grad()
    loss(x, y).backward()
    step()
print(f"{float(epoch()):.6f}")
try:
    refused()
except Exception as error:
    print(type(error).__name__, error)
print(scripted(torch.ones(2, 2)).dtype)
for kind in ("graph_break", "frames", "stats"):
    print(kind, dict(counters[kind]))
