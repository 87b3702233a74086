# SPDX-License-Identifier: Apache-2.0
"""Ways in which optimizers step."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils.data import DataLoader

from tests.training.differential.own import Own, Pairs, cases, watched

SECONDS, BODY = 0.004, 0.01


def loader(samples: int = 48) -> Any:
    return watched(DataLoader(Pairs(samples, SECONDS), 4))


def accumulated() -> None:
    own = Own()
    for index, batch in enumerate(own.each(loader())):
        (own.loss(batch) / 3).backward()
        if index % 3 == 2:
            own.step()
            own.optimizer.zero_grad()
    own.expect(clock=False)


def accumulated_with_a_rest() -> None:
    """The last batches are left over, and trained on after the loop."""
    own = Own()
    for index, batch in enumerate(own.each(loader(44))):
        own.loss(batch).backward()
        if index % 2:
            own.step()
            own.optimizer.zero_grad()
    own.step()
    own.expect(clock=False)


def adversaries() -> None:
    """A GAN: two optimizers make one step together."""
    own, critic = Own(BODY), Own()
    for batch in own.each(loader()):
        critic.learn(batch)
        own.learn(batch)
    own.expect()


def each_parameter_its_own() -> None:
    own = Own()
    every = [torch.optim.SGD([one], lr=0.05) for one in own.model.parameters()]
    for batch in own.each(loader()):
        own.loss(batch).backward()
        for one in every:
            one.step()
            one.zero_grad()
        own.steps += 1
    own.expect(clock=False)


def with_closure() -> None:
    """LBFGS asks for the loss several times in one step."""
    own = Own()
    own.optimizer = torch.optim.LBFGS(own.model.parameters(), lr=0.1, max_iter=4)

    def closure(batch: Any) -> torch.Tensor:
        own.optimizer.zero_grad()
        loss = own.loss(batch)
        loss.backward()
        return loss

    for batch in own.each(loader()):
        print(float(own.optimizer.step(functools.partial(closure, batch))).hex())
        own.steps += 1
    own.expect(clock=False)


def with_scheduler_and_hooks() -> None:
    """Hooks of the job's own on the same optimizer, a scheduler that wraps its step."""
    own, calls = Own(), []
    own.optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    own.optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    scheduler = torch.optim.lr_scheduler.StepLR(own.optimizer, 2, 0.5)
    for batch in own.each(loader()):
        own.learn(batch)
        scheduler.step()
    print(scheduler.get_last_lr(), calls[:4], len(calls))
    own.expect(clock=False)


def scaled() -> None:
    """A gradient scaler leaves out the step whose gradients are infinite."""
    own = Own()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for index, batch in enumerate(own.each(loader())):
        own.optimizer.zero_grad()
        scaler.scale(own.loss(batch) * (float("inf") if index == 5 else 1.0)).backward()
        scaler.step(own.optimizer)
        scaler.update()
    own.steps = 11
    print(scaler.get_scale())
    own.expect(clock=False)


def without_any() -> None:
    """No optimizer at all: batches are the steps."""
    own = Own()
    for batch in own.each(loader()):
        own.loss(batch).backward()
        with torch.no_grad():
            for one in own.model.parameters():
                one -= 0.05 * one.grad
                one.grad = None
        own.steps += 1
    own.expect(clock=False)


def full_batch() -> None:
    """Gradients of all batches, then one step after the loop; three times."""
    own = Own()
    for _ in range(3):
        own.optimizer.zero_grad()
        for batch in own.each(loader()):
            own.loss(batch).backward()
        own.step()
    own.steps = None  # which documentation says is counted in batches
    own.expect(clock=False)


def in_bfloat16() -> None:
    own = Own()
    own.model = own.model.to(torch.bfloat16)
    own.optimizer = torch.optim.SGD(own.model.parameters(), lr=0.05)
    for x, y in own.each(loader()):
        own.learn((x.bfloat16(), y.bfloat16()))
    own.expect(clock=False, precision="bf16")


def under_autocast() -> None:
    own = Own()
    for x, y in own.each(loader()):
        own.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = own.model(x)
        torch.nn.functional.mse_loss(output.float(), y).backward()
        own.step()
    print(output.dtype)
    own.expect(clock=False, precision="bf16")


def decorated_by_autocast() -> None:
    own = Own()

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(x: torch.Tensor) -> Any:
        return own.model(x)

    for x, y in own.each(loader()):
        own.optimizer.zero_grad()
        torch.nn.functional.mse_loss(forward(x).float(), y).backward()
        own.step()
    own.expect(clock=False, precision="bf16")


cases()
