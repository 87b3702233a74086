# SPDX-License-Identifier: Apache-2.0
"""What loops, thread accounts, FLOP counts and reports know of each other; only for type checkers.

`thread_accounts`, `loops` and `batch_flops` refer to each other through these types only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from .counts import Counts
from .cuda_idle import IdleMeter


class OpenLoop(Protocol):
    """A loop that keeps wall time running, as `thread_accounts` and `batch_flops` use it."""

    key: int
    """Of the iterable."""
    evaluates: bool
    """Whether nothing is trained in it."""
    is_pending: bool
    """Whether it is not known yet if its batches are trained on."""
    pending_flops: float

    @property
    def states_precision(self) -> bool:
        """Whether the job says what it computes in."""

    def is_over(self) -> bool:
        """Return whether it was left without being ended."""

    def end(self) -> None:
        """Close it as of the last time that something happened."""

    def stepped(self) -> None:
        """An optimizer stepped while it was open."""

    def leave_body(self) -> None:
        """Count the time since its last batch came."""


class Account(Protocol):
    """What one thread did, as `batch_flops`, `reporter` and `summary` read it."""

    id: str
    job: str
    rank: int | None
    instrumentation: str
    precision: str | None
    loader: dict[str, int | bool | None]
    clock: Callable[[], int]
    counts: Counts
    meter: IdleMeter
    wall_ns: int

    @property
    def open(self) -> Mapping[int, OpenLoop]:
        """Return the loops that keep the wall time running."""

    def times_ns(self) -> tuple[dict[str, int], dict[str, int], int]:
        """Return GPU idle time by measured phase, host time by phase, and wall time."""
