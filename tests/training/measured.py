# SPDX-License-Identifier: Apache-2.0
"""What a account has measured, in one piece, and an optimizer whose steps it counts."""

from __future__ import annotations

from dataclasses import dataclass

from roofline_job.process import PROCESS
from roofline_job.thread_accounts import ThreadAccount


@dataclass(frozen=True, slots=True)
class Measured:
    """The totals of a account; phases that took no time are left out."""

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


def measured(account: ThreadAccount | None = None, job: str | None = None) -> Measured:
    """Return what a account has measured; by default that of this thread."""
    account = account or PROCESS.account(job)
    assert account is not None
    _, phases_ns, wall_ns = account.times_ns()
    assert sum(phases_ns.values()) <= wall_ns
    spent = {phase: time_ns for phase, time_ns in phases_ns.items() if time_ns}
    return Measured(*account.counts.totals(), wall_ns, spent)


def is_at_rest() -> bool:
    """Return whether neither a phase nor a wait is under way in this thread."""
    account = PROCESS.account_here()
    return account is not None and (account.depth, account.asking) == (0, None)


class Optimizer:
    """Steps, and calls the client as an optimizer does."""

    def step(self) -> None:
        account = PROCESS.account_of_step()
        assert account is not None
        account.optimizer_step(self)
