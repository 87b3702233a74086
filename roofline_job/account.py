# SPDX-License-Identifier: Apache-2.0
"""The totals of one thread, as its reports, FLOP counts and loops use them."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import get_ident
from typing import Protocol

from .counts import Counts
from .cuda_idle import IdleMeter
from .workers import Activity


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
    def has_one_batch(self) -> bool:
        """Whether it gave one batch, and no other loop any since the last one was opened alone."""

    @property
    def states_precision(self) -> bool:
        """Whether the job states its precision."""

    def is_over(self) -> bool:
        """Return whether it was left without being ended."""

    def end(self) -> None:
        """Close the loop as of its last event."""

    def stepped(self) -> None:
        """An optimizer stepped while it was open."""

    def leave_body(self) -> None:
        """Count the time since its last batch came."""


class Account:
    """The totals of one thread for one (job, rank)."""

    def __init__(
        self, job: str, rank: int | None, instrumentation: str, clock: Callable[[], int]
    ) -> None:
        self.id = os.urandom(16).hex()
        self.job = job
        self.rank = rank
        """None until the first report, which asks for it."""
        self.instrumentation = instrumentation
        self.precision: str | None = None
        self.loader: dict[str, int | bool | None] = {}
        """What is known of the data loader, by the keys of the protocol."""
        self.activity = Activity()
        self.look_ns = 0
        """When to look at the workers next."""
        self.clock = clock
        self.thread = get_ident()
        self.counts = Counts()
        self.meter = IdleMeter()
        self.wall_ns = 0
        self.flops_since_ns = 0
        """What `wall_ns` was when FLOPs began to count."""
        self.phase_ns: dict[str, int] = {}
        self.checkpoints = 0
        """How often it saved; what is saved with no batch or step in between is one checkpoint."""
        self._saved_after: tuple[int, int] | None = None
        self.open: dict[int, OpenLoop] = {}
        """Loops that keep the wall time running."""

    def flops_per_second(self) -> float | None:
        """Return the FLOP/s since counting began; None where none were counted."""
        flops, counted_ns = self.counts.totals()[3], self.wall_ns - self.flops_since_ns
        return flops / (counted_ns / 1e9) if flops and counted_ns > 0 else None

    def saved(self) -> None:
        """Count a checkpoint that has ended."""
        done = self.counts.totals()[:2]
        if done != self._saved_after:
            self.checkpoints, self._saved_after = self.checkpoints + 1, done

    def times_ns(self) -> tuple[dict[str, int], dict[str, int], int]:
        """Return GPU idle time by measured phase, host time by phase, and wall time."""
        meter = self.meter
        meter.collect()
        idles = dict(meter.idle_ns) if meter.measuring else {}
        phases = self.phase_ns.copy()
        bounded = {
            phase: min(idle, phases[phase]) for phase, idle in idles.items() if phase in phases
        }
        return bounded, phases, self.wall_ns
