# SPDX-License-Identifier: Apache-2.0
"""Processes that a job makes: each that trains reports for itself, no other does."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from torch.utils.data import DataLoader

from tests.training.differential.own import FILE, Own, Pairs, cases, quiet, unknown, watched


def train(name: str, samples: int = 40) -> None:
    own = Own()
    own.train(watched(DataLoader(Pairs(samples), 4)))
    own.expect(clock=False, case=name)


def started(method: str) -> None:
    """A child trains; this process does not."""
    context: Any = multiprocessing.get_context(method)
    child = context.Process(target=train, args=(f"{method} child",))
    child.start()
    child.join()
    print(child.exitcode)
    quiet()


def forked() -> None:
    started("fork")


def spawned() -> None:
    started("spawn")


def from_a_server() -> None:
    started("forkserver")


def forked_in_the_loop() -> None:
    """The child goes on with its own copy of a loop that is its parent's."""
    own = Own()
    for batch in own.each(watched(DataLoader(Pairs(40), 4))):
        own.learn(batch)
        if own.batches == 5:
            child = os.fork()
            if child:
                os.waitpid(child, 0)
    if child:
        own.expect(clock=False)
    else:
        print(own.result())
        unknown()


def forked_to_save() -> None:
    """A child that only writes a checkpoint and leaves."""
    own = Own()
    for batch in own.each(watched(DataLoader(Pairs(40), 4))):
        own.learn(batch)
        if own.batches == 5:
            child = os.fork()
            if not child:
                own.save("forked.pt")
                os._exit(0)
            os.waitpid(child, 0)
    own.expect(clock=False)


def in_a_pool() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        pool.submit(train, "in_a_pool").result()
    quiet()


CODE = """
import sys
from torch.utils.data import DataLoader
print(sum(DataLoader(list(range(8)), 4)).tolist(), sys.argv, __name__)
"""


def by_command() -> None:
    """Another Python of the job, with code on its command line; its loop has no optimizer."""
    words = [sys.executable, "-c", CODE, "word"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    print(child.communicate(), child.returncode)
    quiet()
    own = Own()
    own.steps = own.batches = 2
    own.samples = 8
    own.expect(pid=child.pid, case="by_command child", clock=False)


def replaced() -> None:
    """The job becomes another program in the same process."""
    if "again" in sys.argv:
        again = Own()
        again.train(DataLoader(Pairs(40), 4))
        print(again.result())
        return
    own = Own()
    for batch in own.each(DataLoader(Pairs(40), 4)):
        own.learn(batch)
        if own.batches == 5:
            print(own.result(), flush=True)
            unknown()  # its last second is lost
            os.execv(sys.executable, [sys.executable, sys.argv[0], "replaced", "again"])


if __name__ == "__main__":
    if sys.argv[1:] == ["replaced", "again"]:
        replaced()
    else:
        assert FILE.is_absolute()
        cases()
