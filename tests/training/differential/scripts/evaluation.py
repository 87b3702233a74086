# SPDX-License-Identifier: Apache-2.0
"""Evaluations, on other data and on the training loader itself, in and around the loop."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader

from tests.training.differential.own import Own, Pairs, cases, unknown, watched

SECONDS, BODY = 0.004, 0.01


def loader(samples: int = 40) -> Any:
    return watched(DataLoader(Pairs(samples, SECONDS), 4))


def evaluate(own: Own, batches: Any) -> None:
    print(float(sum(own.loss(batch) for batch in batches)).hex())


def after_each_epoch() -> None:
    own, one, other = Own(BODY), loader(), loader(24)
    for _ in range(2):
        own.train(one)
        with torch.no_grad():
            evaluate(own, other)
    own.expect(clock=False, phases=["data", "eval"])


def with_gradients_switched_off() -> None:
    own, one = Own(BODY), loader()
    for _ in range(2):
        own.train(one)
        torch.set_grad_enabled(False)
        evaluate(own, one)
        torch.set_grad_enabled(True)
    own.expect(clock=False, phases=["data", "eval"])


def in_the_body() -> None:
    """In the middle of an epoch, on the loader that trains."""
    own, one = Own(BODY), loader()
    for index, batch in enumerate(own.each(one)):
        own.learn(batch)
        if index % 5 == 4:
            with torch.no_grad():
                evaluate(own, one)
    own.expect(clock=False, phases=["data", "eval"])


def under_no_grad_in_its_body() -> None:
    """Gradients are switched off for the forward only, when the batch is there already."""
    own, one = Own(BODY), loader()
    for _ in range(2):
        own.train(one)
        total = 0.0
        for batch in one:
            with torch.no_grad():
                total += float(own.loss(batch))
        print(total.hex())
    # Whether it trains is known too late: its steps must not count, its batches may.
    own.expect(counted=False, clock=False)


def before_training() -> None:
    """A sanity check, as trainers do one."""
    own, one = Own(BODY), loader()
    with torch.no_grad():
        evaluate(own, loader(8))
    own.train(one)
    own.expect(clock=False)


def frozen_parts() -> None:
    """No evaluation: a part of the model runs without gradients in a loop that trains."""
    own, frozen = Own(BODY), torch.nn.Linear(4, 4)
    for x, y in own.each(loader()):
        with torch.no_grad():
            x = frozen(x)
        own.learn((x, y))
    own.expect(phases=["data"])


def nothing_but() -> None:
    """A job that only evaluates may say nothing, or what it likes."""
    own = Own()
    with torch.no_grad():
        evaluate(own, loader())
    unknown()


cases()
