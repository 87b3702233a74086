# SPDX-License-Identifier: Apache-2.0
"""What a lane has measured, in one piece, and an optimizer whose steps it counts."""

from __future__ import annotations

from dataclasses import dataclass

from roofline_job.process import PROCESS
from roofline_job.thread_accounts import Lane


@dataclass(frozen=True, slots=True)
class Measured:
    """The totals of a lane; phases that took no time are left out."""

    steps: int
    batches: int
    samples: float | None
    flops: float | None
    wall_ns: int
    phase_ns: dict[str, int]

    @property
    def counts(self) -> tuple[int, int, float | None]:
        """Steps, batches and samples."""
        return self.steps, self.batches, self.samples


def measured(lane: Lane | None = None, job: str | None = None) -> Measured:
    """Return what a lane has measured; by default that of this thread."""
    lane = lane or PROCESS.lane(job)
    assert lane is not None
    _, phases_ns, wall_ns = lane.times_ns()
    assert sum(phases_ns.values()) <= wall_ns
    spent = {phase: time_ns for phase, time_ns in phases_ns.items() if time_ns}
    return Measured(*lane.counts.totals(), wall_ns, spent)


class Optimizer:
    """Steps, and calls the client as an optimizer does."""

    def step(self) -> None:
        lane = PROCESS.lane_of_step()
        assert lane is not None
        lane.optimizer_step(self)
