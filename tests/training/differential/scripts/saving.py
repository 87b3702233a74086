# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in and outside loops; pickles, copies and descriptions of what is hooked."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import pickle
import time
import warnings
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.distributed.checkpoint as checkpoints
from torch.utils.data import DataLoader

from tests.training.differential.own import Own, Pairs, cases, quiet, watched

BODY = 0.01


class Slow:
    """Takes its time to be pickled."""

    def __reduce__(self) -> Any:
        time.sleep(0.05)
        return int, ()


def loader(samples: int = 40) -> Any:
    return watched(DataLoader(Pairs(samples, 0.002), 4))


def timed(own: Own, function: Any, *arguments: Any) -> None:
    began = time.perf_counter()
    function(*arguments)
    own.saved += time.perf_counter() - began


def in_the_loop() -> None:
    own = Own(BODY)
    for batch in own.each(loader()):
        own.learn(batch)
        if own.steps % 3 == 0:
            timed(own, torch.save, [own.model.state_dict(), Slow()], f"{own.steps}.pt")
    own.expect(phases=["data", "checkpoint"])


def after_the_loop() -> None:
    own = Own(BODY)
    for _ in range(2):
        own.train(loader())
        timed(own, torch.save, [own.model, own.optimizer, Slow()], "model.pt")
        own.ended = time.perf_counter()
    own.expect(phases=["data", "checkpoint"])


def before_any_loop() -> None:
    """A process that prepares data saves as well: it trains nothing."""
    torch.save(torch.zeros(3), "prepared.pt")
    print(torch.load("prepared.pt"))
    quiet()


def by_safetensors() -> None:
    own = Own(BODY)
    for batch in own.each(loader()):
        own.learn(batch)
        if own.steps == 5:
            timed(own, safetensors.torch.save_file, own.model.state_dict(), "model.safetensors")
    own.expect(phases=["data", "checkpoint"])


def distributed_checkpoint() -> None:
    own = Own(BODY)
    warnings.simplefilter("ignore")
    for batch in own.each(loader()):
        own.learn(batch)
        if own.steps == 5:
            state = {"model": own.model.state_dict()}
            timed(own, functools.partial(checkpoints.save, state, checkpoint_id="checkpoint"))
    print(sorted(os.listdir("checkpoint")))
    Path("checkpoint/.metadata").unlink()  # it holds a random id
    own.expect(phases=["data", "checkpoint"])


def what_cannot_be() -> None:
    own = Own()
    for batch in own.each(loader()):
        own.learn(batch)
        own.expect(clock=False)
        torch.save(lambda: None, "model.pt")


def save_is_a_function() -> None:
    """It is pickled by its name, and looks as it does without us."""
    save = torch.save
    print(pickle.loads(pickle.dumps(save)) is torch.save, torch.serialization.save is torch.save)
    print(pickle.dumps(save))
    print(save.__name__, save.__qualname__, save.__module__, inspect.signature(save))
    print(inspect.getsource(save)[:200])
    print(inspect.isfunction(save), inspect.isroutine(save), save.__doc__)
    print(inspect.get_annotations(save), copy.deepcopy(save) is save)
    for function in (safetensors.torch.save_file, checkpoints.save):
        print(inspect.isfunction(function), inspect.signature(function), function.__module__)
    quiet()


def of_loaders() -> None:
    """Loaders are copied and pickled, their iterators refuse both in their own words."""
    own, one = Own(), loader()
    batches = iter(one)
    own.learn(own.ask(next, batches))
    for refused in (pickle.dumps, copy.copy, copy.deepcopy):
        try:
            print(refused(batches))
        except NotImplementedError as error:
            print(error)
    for other in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        own.train(other)
    own.expect(clock=False)


def of_optimizers() -> None:
    own = Own()
    own.train(loader())
    for other in (copy.deepcopy(own.optimizer), pickle.loads(pickle.dumps(own.optimizer))):
        print(type(other).__name__, other.state_dict() == own.optimizer.state_dict())
        other.step()
    print(sorted(vars(own.optimizer)), len(pickle.dumps(own.optimizer)))
    own.model, kept = copy.deepcopy(own.model), own.model
    print(len(list(kept.parameters())))
    own.steps = None  # whether those of the copies count is another question
    own.expect(clock=False)


cases()
