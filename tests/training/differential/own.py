# SPDX-License-Identifier: Apache-2.0
"""What the scripts share: data of known speed, a model, and what they count and time themselves.

A script writes one line into ``own.jsonl`` for each process that trains; the harness holds the
report of that process against it. Cases of one script run in forked children, so that a failure is
that of one case; ``python SCRIPT CASE`` runs one alone.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import isfunction, signature
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch.utils.data import Dataset, IterableDataset

CASE = [Path(sys.argv[0]).stem]
"""What runs in this process."""
FILE = Path.cwd() / "own.jsonl"
WATCH = os.environ.get("DIFFERENTIAL_WATCH") == "1"
AT_ONCE = 6
"""Children that run at the same time: most of them sleep."""

torch.manual_seed(0)
X = torch.randn(128, 4)
Y = X.sum(1, keepdim=True) + torch.randn(128, 1)
torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # imports the compiler: before forks


class Pairs(Dataset[Any]):
    """Samples that take their time each."""

    def __init__(self, samples: int = 48, seconds: float = 0.0) -> None:
        self.samples = samples
        self.seconds = seconds

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index >= self.samples:
            raise IndexError
        if self.seconds:
            time.sleep(self.seconds)
        return X[index], Y[index]


class Stream(IterableDataset[Any]):
    """The same without a length, shared out among workers."""

    def __init__(self, samples: int = 48, seconds: float = 0.0) -> None:
        self.pairs = Pairs(samples, seconds)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        worker = torch.utils.data.get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, len(self.pairs), stride):
            yield self.pairs[index]


if WATCH:
    from roofline_job import watch

    _watched: list[int] = []


def watched(loader: Any) -> Any:
    """Put ``watch`` around a loader where the test asks for it."""
    if not WATCH:
        return loader
    _watched.append(os.getpid())
    return watch(loader, job="tested")


def _as_watched(line: dict[str, Any]) -> None:
    """Change what a report has to say to what it can say of a watched loader.

    ``watch`` alone hooks into no checkpoint and no autocast, and measures what it is asked to,
    whichever thread that is in.
    """
    if os.getpid() not in _watched:
        line["quiet"] = True
    line["saved"] = 0.0
    line["degraded"] = None
    for name in ("phases", "precision"):
        line.pop(name, None)


class Own:
    """A model that is trained, and what the script itself counts and times.

    The clock runs from ``asks`` (just before a batch is asked for) to ``got``; ``over`` ends the
    last wait, in which the data ended.
    """

    def __init__(self, body: float = 0.0) -> None:
        torch.manual_seed(1)
        self.model = torch.nn.Linear(4, 1)
        self.optimizer: Any = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.body = body
        self.samples: Any = 0
        self.steps: Any = 0
        self.batches: Any = 0
        self.waited = self.saved = 0.0
        self.began: float | None = None
        self.asked: float | None = None
        self.ended = 0.0

    def asks(self) -> None:
        """The loop is about to ask for a batch, or to make what it will ask."""
        if self.asked is None:
            self.asked = time.perf_counter()
        if self.began is None:
            self.began = self.asked

    def iterate(self, loader: Any) -> Any:
        """Return a loader's iterator; what it takes to make one is waited for."""
        self.asks()
        return iter(loader)

    def got(self, batch: Any = None) -> None:
        """The batch is there; None is not counted."""
        self.over()
        if batch is not None:
            self.batches += 1
            self.samples += len(batch[0])

    def over(self) -> None:
        """The wait is over."""
        self.ended = time.perf_counter()
        if self.asked is not None:
            self.waited += self.ended - self.asked
            self.asked = None

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call what gives a batch, with the clock around it."""
        self.asks()
        try:
            batch = function(*arguments)
        finally:
            self.over()
        self.got(batch)
        return batch

    def each(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Iterate as ``for`` does, with the clock around each ``next()``."""
        self.asks()
        for batch in batches:
            self.got(batch)
            yield batch
            self.asks()
        self.over()

    def loss(self, batch: Any) -> torch.Tensor:
        x, y = batch
        return torch.nn.functional.mse_loss(self.model(x), y)

    def learn(self, batch: Any) -> None:
        """One step, and what the body takes besides."""
        self.optimizer.zero_grad()
        self.loss(batch).backward()
        self.step()
        if self.body:
            time.sleep(self.body)

    def train(self, batches: Iterable[Any]) -> None:
        """Go through a loop, with one step for each batch."""
        for batch in self.each(batches):
            self.learn(batch)

    def step(self) -> None:
        self.optimizer.step()
        self.steps += 1

    def save(self, path: str) -> None:
        begin = time.perf_counter()
        torch.save(self.model.state_dict(), path)
        self.saved += time.perf_counter() - begin

    def result(self) -> str:
        """Return the parameters, to the bit."""
        values = [value for one in self.model.parameters() for value in one.detach().flatten()]
        return " ".join(float(value).hex() for value in values)

    def expect(self, **expected: Any) -> None:
        """Print the result, and write down what the report of this process has to say.

        ``counted=False``: only steps are known, not what the loops count. ``clock=False``: no time
        is compared; ``share=False``: only those of phases, as the loop's last body goes unseen.
        ``quiet=True``: this process reports nothing. ``degraded``: the reasons, none by default.
        ``phases``: exactly these. ``exit=False``: the process leaves without a last report.
        """
        print(self.result(), flush=True)
        whole = time.perf_counter() if self.began is None else self.ended
        line: dict[str, Any] = {
            "pid": os.getpid(),
            "case": CASE[-1],
            "steps": self.steps,
            "batches": self.batches,
            "samples": self.samples,
            "waited": self.waited,
            "saved": self.saved,
            "whole": whole - (self.began or whole),
            **expected,
        }
        if WATCH:
            _as_watched(line)
        _write(line)


def quiet() -> None:
    """Write down that this process has nothing to report."""
    _write({"pid": os.getpid(), "case": CASE[-1], "quiet": True})


def unknown() -> None:
    """Write down that this process may report what it likes: what it did is chance."""
    _write({"pid": os.getpid(), "case": CASE[-1], "unknown": True})


def _write(line: Mapping[str, Any]) -> None:
    with FILE.open("a", encoding="ascii") as file:
        file.write(json.dumps(line) + "\n")


def cases(**named: Callable[[], None]) -> None:
    """Run each case in a child of its own, or in this process those that are asked for by name.

    By default they are the script's own functions that have no parameters.
    """
    table: Mapping[str, Callable[[], None]] = named or {
        name: each
        for name, each in vars(sys.modules["__main__"]).items()
        if isfunction(each) and each.__module__ == "__main__" and not signature(each).parameters
    }
    if sys.argv[1:]:
        for name in sys.argv[1:]:
            table[name]()
        return
    children = deque[_Child]()
    for name, function in table.items():
        if len(children) == AT_ONCE:
            children.popleft().show()
        children.append(_Child(name, function))
    for child in children:
        child.show()


def _left(function: Callable[[], None]) -> int:
    """Call a function and leave as Python does, but for what it frees at its end (most of 1 s)."""
    code = 0
    try:
        function()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if not isinstance(error.code, int | None):
            print(error.code, file=sys.stderr)
    except BaseException as error:
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        sys.excepthook(type(error), error, error.__traceback__)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code


class _Child:
    """A case in a forked process, whose output is shown when it has ended."""

    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self.name = name
        self.outputs: list[BinaryIO] = [
            tempfile.TemporaryFile(),  # noqa: SIM115 # closed with this process
            tempfile.TemporaryFile(),  # noqa: SIM115
        ]
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            for number, output in enumerate(self.outputs, 1):
                os.dup2(output.fileno(), number)
            CASE.append(name)
            os._exit(_left(function))

    def show(self) -> None:
        _, status = os.waitpid(self.pid, 0)
        texts = []
        for output in self.outputs:
            output.seek(0)
            texts.append(output.read().decode())
        print(f"== {self.name}\n{texts[0]}exit {os.waitstatus_to_exitcode(status)}", flush=True)
        print(f"== {self.name}\n{texts[1]}", end="", file=sys.stderr, flush=True)
