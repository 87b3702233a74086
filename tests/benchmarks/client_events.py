# SPDX-License-Identifier: Apache-2.0
"""What one event pair costs the job in Python, beside the CUDA calls themselves.

The events here do nothing, so what is left of a pair after the same calls made directly is ours.
On a real GPU ``tests/gpu/test_stall_truth.py`` prints the cost of the CUDA calls as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

from roofline_job.cuda_idle import IdleMeter
from roofline_job.events import FREE_EVENTS

PAIRS = 2_000
ROUNDS = 50
TARGET_MICROSECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PairCost:
    """Microseconds per step: with the meter, and for the same torch calls alone."""

    metered_microseconds: float
    calls_microseconds: float

    @property
    def own_microseconds(self) -> float:
        """Return what the meter adds to the calls that it makes."""
        return self.metered_microseconds - self.calls_microseconds


class _Event:
    """An event of a GPU that is always idle."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.timed = enable_timing

    def record(self, stream: object) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Say that it is done."""
        return True

    def elapsed_time(self, end: _Event) -> float:
        """Say that no time passed."""
        return 0.0


class _Graph:
    """A graph that is never captured."""

    def capture_begin(self) -> None:
        """Do nothing."""

    def capture_end(self) -> None:
        """Do nothing."""


def _torch(stream: object) -> Any:
    torch: Any = ModuleType("torch")
    torch.version = SimpleNamespace(cuda="13.0", hip=None)
    torch.compiler = SimpleNamespace(is_compiling=lambda: False)
    torch._C = SimpleNamespace(_cuda_hasPrimaryContext=lambda device: True)
    torch.cuda = SimpleNamespace(
        is_initialized=lambda: True,
        is_current_stream_capturing=lambda: False,
        current_stream=lambda: stream,
        Event=_Event,
        CUDAGraph=_Graph,
    )
    return torch


def _microseconds(step: Callable[[], object]) -> float:
    """Return the mean time of a step in the round that was disturbed least."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(PAIRS):
            step()
        rounds.append((time.perf_counter() - began) / PAIRS * 1e6)
    return min(rounds)


def pair_cost() -> PairCost:
    """Time a step with one data phase and one optimizer step, and its torch calls alone."""
    stream = SimpleNamespace(device_index=0, stream_id=0)
    torch = _torch(stream)
    real = sys.modules.get("torch")
    sys.modules["torch"] = torch
    FREE_EVENTS.clear()
    meter = IdleMeter()
    meter.look()
    start, stop, stepped = meter.start, meter.stop, meter.stream_seen

    def metered() -> None:
        pair = start()
        assert pair is not None
        stop(pair, "data", 0)
        stepped()

    before, after, cuda = _Event(), _Event(), torch.cuda

    def alone() -> None:
        for _ in range(2):
            cuda.is_initialized()
            torch.compiler.is_compiling()
            cuda.is_current_stream_capturing()
        cuda.is_initialized()
        torch.compiler.is_compiling()
        cuda.current_stream()
        before.record(stream)
        after.record(stream)
        after.query()
        before.elapsed_time(after)

    try:
        return PairCost(_microseconds(metered), _microseconds(alone))
    finally:
        FREE_EVENTS.clear()
        del sys.modules["torch"]
        if real is not None:
            sys.modules["torch"] = real


def main() -> None:
    """Print the cost."""
    cost = pair_cost()
    print(
        f"an event pair per step: {cost.own_microseconds:.2f} us of Python"
        f" (target {TARGET_MICROSECONDS:.0f}), {cost.metered_microseconds:.2f} us with the calls"
        " of a stand-in that does nothing"
    )


if __name__ == "__main__":
    main()
