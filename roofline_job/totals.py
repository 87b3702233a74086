# SPDX-License-Identifier: Apache-2.0
"""What a run did since it began: the sums that are reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lanes import Lane


@dataclass(slots=True)
class Totals:
    """Cumulative totals; times in nanoseconds."""

    steps: int = 0
    batches: int = 0
    samples: float | None = None
    """None until the job said how many samples a batch has."""
    wall_ns: int = 0
    phase_ns: dict[str, int] = field(default_factory=dict)
    idle_ns: dict[str, int] = field(default_factory=dict)
    """By phase that CUDA events measured; empty where none did."""
    flops: float | None = None

    def add(self, lane: Lane) -> None:
        """Add what one thread did.

        That thread may go on meanwhile. The parts are read before the whole that holds them:
        idle time, then phases, then wall time.
        """
        meter = lane.meter
        meter.collect()
        idles = dict(meter.idle_ns) if meter.measuring else {}
        waits = lane.waits()
        for phase, idle in idles.items():
            self.idle_ns[phase] = self.idle_ns.get(phase, 0) + min(idle, waits.get(phase, 0))
        for phase, wait in waits.items():
            self.phase_ns[phase] = self.phase_ns.get(phase, 0) + wait
        self.wall_ns += lane.wall_ns
        self.batches += lane.counts.batches()
        self.steps += lane.counts.steps()
        self.samples = _plus(self.samples, lane.counts.samples)
        self.flops = _plus(self.flops, lane.counts.flops())

    def copy(self) -> Totals:
        """Return the same totals in dictionaries of their own."""
        return Totals(
            self.steps,
            self.batches,
            self.samples,
            self.wall_ns,
            self.phase_ns.copy(),
            self.idle_ns.copy(),
            self.flops,
        )


def _plus(total: float | None, part: float | None) -> float | None:
    if part is None:
        return total
    return part if total is None else total + part
