# SPDX-License-Identifier: Apache-2.0
"""Batches that other threads ask for, threads that train, optimizers that step elsewhere."""

from __future__ import annotations

import _thread
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils.data import DataLoader

from tests.training.differential.own import Own, Pairs, cases, watched

SECONDS, BODY = 0.005, 0.02


def loader(samples: int = 40) -> Any:
    return watched(DataLoader(Pairs(samples, SECONDS), 4))


def helped(own: Own) -> None:
    """The loader was read in a helper thread: it is said so, and no wait is invented."""
    own.expect(counted=False, clock=False, degraded=["helper_thread"], phases=[])


def submitted_next() -> None:
    """Ask for one batch ahead in a thread of a pool."""
    own, batches = Own(BODY), iter(loader())
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(next, batches)
        for _ in range(10):
            batch = ahead.result()
            ahead = pool.submit(next, batches)
            own.learn(batch)
        print(type(ahead.exception()))
    helped(own)


def started_bare() -> None:
    """A thread whose first call is ``next``: no batch is lost, nothing is printed."""
    own, batches = Own(), iter(loader())
    for _ in range(5):
        _thread.start_new_thread(next, (batches,))
        time.sleep(0.15)
    own.train(batches)
    print(own.steps)
    own.expect(counted=False, clock=False, degraded=None)


def in_the_background() -> None:
    """A helper thread reads ahead into a queue."""
    own, batches = Own(BODY), queue.Queue[Any](2)

    def fill() -> None:
        for batch in loader():
            batches.put(batch)
        batches.put(None)

    threading.Thread(target=fill).start()
    for batch in iter(batches.get, None):
        own.learn(batch)
    helped(own)


def wholly() -> None:
    """Everything happens in one thread that is not the main one."""

    def train() -> None:
        own = Own(BODY)
        for _ in range(2):
            own.train(loader())
        own.expect()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()


def two_at_once() -> None:
    """Two models train at the same time; this process's steps are those of both."""

    def train(one: Own) -> str:
        for batch in loader():
            one.learn(batch)
        return f"{one.steps} {one.result()}"

    with ThreadPoolExecutor(2) as pool:
        print(*pool.map(train, (Own(BODY), Own(0.01))), sep="\n")
    own = Own()
    own.steps = None
    own.expect(counted=False, clock=False)


def steps_in_a_pool() -> None:
    """As an optimizer in backward does on CUDA, where backward runs in autograd's own thread."""
    own = Own(BODY)
    with ThreadPoolExecutor(1) as pool:
        for batch in own.each(loader(120)):
            own.optimizer.zero_grad()
            own.loss(batch).backward()
            pool.submit(own.step).result()
            time.sleep(BODY)
    own.expect()


def steps_in_backward() -> None:
    """One optimizer for each parameter, stepping as soon as its gradient is there."""
    own = Own()
    optimizers = {one: torch.optim.SGD([one], lr=0.05) for one in own.model.parameters()}

    def step(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for one in own.model.parameters():
        one.register_post_accumulate_grad_hook(step)
    for batch in own.each(loader(120)):
        own.loss(batch).backward()
        own.steps += 1
        time.sleep(BODY)
    own.expect()


def backward_in_a_thread() -> None:
    """The loop is here; forward, backward and step are elsewhere."""
    own = Own(BODY)
    with ThreadPoolExecutor(1) as pool:
        for batch in own.each(loader()):
            pool.submit(own.learn, batch).result()
    own.expect()


def saved_in_a_thread() -> None:
    """A checkpoint that a helper writes is no wait of the loop's."""
    own = Own(BODY)
    with ThreadPoolExecutor(1) as pool:
        for batch in own.each(loader()):
            own.learn(batch)
            pool.submit(torch.save, own.model.state_dict(), "model.pt").result()
    own.expect(phases=["data"])


cases()
