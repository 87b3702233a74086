# SPDX-License-Identifier: Apache-2.0
"""A client that has done nothing yet, a clock for it, and a socket that it reports to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roofline_job import (
    captures,
    cuda_idle,
    degraded,
    flop_counter,
    loops,
    process,
    reporter,
    wrapping,
)
from roofline_job.captures import CAPTURES
from roofline_job.cuda_idle import FREE_EVENTS
from roofline_job.process import PROCESS
from roofline_job.thread_accounts import ThreadAccount
from tests.training.listener import Listener

PARTS = [
    part
    for module in (degraded, captures, cuda_idle, flop_counter)
    for part in vars(module).values()
    if isinstance(part, degraded.Part)
]


class Clock:
    """Goes on only when a test moves it, and starts at a second: 0 is no time."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ns += round(seconds * 1e9)

    def spend(self, time_ns: int) -> None:
        """Let so many nanoseconds pass."""
        self.now_ns += time_ns


@pytest.fixture
def client() -> Iterator[None]:
    """Begin with a client that has done nothing, and leave nothing to report at exit."""
    begin_anew()
    yield
    begin_anew()


def begin_anew() -> None:
    """Have the client forget what it did, with every part switched on."""
    PROCESS.reset()
    PROCESS.automatic = False
    degraded.FOUND.clear()
    degraded._unlogged.clear()
    for part in PARTS:
        part.on = True
    CAPTURES.reset()
    FREE_EVENTS.clear()
    loops._optimizer = type(None)  # of another test, in which its gradients showed what trains
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    if compiler is not None:  # what another test compiled
        compiler.cached_backends.clear()


@pytest.fixture(autouse=True)
def _unbound() -> None:
    """Forget what a stand-in for torch said of tracing."""
    wrapping._is_compiling, wrapping._callback = None, type(None)


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no framework be imported, whatever another test did."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("torch", "jax")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def clock(client: None, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Put every account on one clock by hand."""
    clock = Clock()

    def account(job: str, rank: int | None, instrumentation: str) -> ThreadAccount:
        return ThreadAccount(job, rank, instrumentation, clock)

    monkeypatch.setattr(process, "ThreadAccount", account)
    return clock


@pytest.fixture
def unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every report be delivered to nobody."""
    monkeypatch.setattr(reporter, "deliver", lambda *_: True)


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: None) -> Iterator[Listener]:
    """Listen in the daemon's place."""
    found = Listener(tmp_path / "training.sock")
    monkeypatch.setenv("ROOFLINE_TRAINING_SOCKET", str(found.path))
    yield found
    found.close()
