# SPDX-License-Identifier: Apache-2.0
"""Trains compiled: parts of the step, whole steps, functions that hold the loop or save."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader

from tests.training.differential.own import Own, Pairs, cases, unknown, watched

compiled: Callable[..., Any] = torch.compile(backend="eager")
differentiated: Callable[..., Any] = torch.compile(backend="aot_eager")
whole: Callable[..., Any] = torch.compile(backend="eager", fullgraph=True)


def loader(samples: int = 32) -> Any:
    return watched(DataLoader(Pairs(samples), 4))


def expect(own: Own, **expected: Any) -> None:
    """Dynamo compiles what it would without us: as many graphs, of as many calls."""
    print(dict(counters["stats"]))
    own.expect(clock=False, **expected)


def shown(own: Own) -> None:
    """What happens inside of compiled code is not always seen."""
    print(dict(counters["stats"]), own.result())
    unknown()


def the_loss() -> None:
    own = Own()

    @differentiated
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((own.model(x) - y) ** 2).mean()

    for x, y in own.each(loader()):
        own.optimizer.zero_grad()
        loss(x, y).backward()
        own.step()
    expect(own)


def the_model() -> None:
    own = Own()
    model = compiled(own.model)
    for x, y in own.each(loader()):
        own.optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        own.step()
    expect(own)


def the_optimizers_step() -> None:
    own = Own()
    own.optimizer = torch.optim.Adam(own.model.parameters(), lr=0.1)
    step = compiled(own.optimizer.step)
    for batch in own.each(loader()):
        own.optimizer.zero_grad()
        own.loss(batch).backward()
        step()
    own.steps = None  # compiled steps call no hook of Python's, or are counted: as PyTorch has it
    expect(own)


def the_whole_step() -> None:
    own = Own()

    @compiled
    def learn(x: torch.Tensor, y: torch.Tensor) -> None:
        own.optimizer.zero_grad()
        ((own.model(x) - y) ** 2).mean().backward()
        own.optimizer.step()

    for x, y in own.each(loader()):
        learn(x, y)
    own.steps = None
    expect(own)


def the_loop() -> None:
    own = Own()

    @compiled
    def epoch(batches: Any) -> torch.Tensor:
        total = torch.zeros(())
        for x, y in batches:
            own.optimizer.zero_grad()
            value = ((own.model(x) - y) ** 2).mean()
            value.backward()
            own.optimizer.step()
            total = total + value.detach()
        torch.save(own.model.state_dict(), "epoch.pt")
        return total

    print(float(epoch(loader())).hex())
    shown(own)


def the_next() -> None:
    own = Own()

    @compiled
    def learn(batches: Any) -> torch.Tensor:
        x, y = next(batches)
        return ((own.model(x) - y) ** 2).mean()

    batches = iter(loader())
    for _ in range(8):
        own.optimizer.zero_grad()
        learn(batches).backward()
        own.step()
    shown(own)


def refused() -> None:
    """What cannot be compiled as a whole is refused."""
    own = Own()

    @whole
    def saved(batch: Any) -> None:
        torch.save(own.model.state_dict(), "refused.pt")

    @whole
    def asked(batches: Any) -> Any:
        return next(batches)

    for batch in own.each(loader()):
        own.learn(batch)
    for function, argument in ((saved, batch), (asked, iter(DataLoader(Pairs(32), 4)))):
        try:
            function(argument)
        except Exception as error:
            print(type(error).__name__)
    expect(own)


def exported() -> None:
    own = Own()
    for batch in own.each(loader()):
        own.learn(batch)
    print(torch.export.export(own.model, (batch[0],)).graph)
    expect(own)


cases()
