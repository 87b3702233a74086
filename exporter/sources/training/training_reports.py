# SPDX-License-Identifier: Apache-2.0
"""The source `training`: reports of this node's jobs, and counts of accepted and rejected ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.clock import Clock
from exporter.errors import one_line
from exporter.model.training import TrainingReport
from exporter.sources.interface import TRAINING
from exporter.sources.training.credentials import Processes
from exporter.sources.training.decode import decode
from exporter.sources.training.endpoint import SocketAccess
from exporter.sources.training.ledger import Ledger
from exporter.sources.training.receiver import Arrival, Inbox, Receiver
from exporter.sources.training.refusals import LOG_INTERVAL_SECONDS, Refusals

PROCFS = "/proc"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Socket, permissions and limits."""

    paths: tuple[str, ...]
    """Of the socket, in the order in which they are tried; see `candidates`."""
    access: SocketAccess = field(default_factory=SocketAccess)
    max_jobs: int = 64
    max_ranks: int = 512
    owners: bool = True
    """Whether jobs are shown with their owners."""
    procfs: str = PROCFS


class TrainingSource(Receiver):
    """Receives reports on its own thread; thread-safe."""

    name = TRAINING

    def __init__(self, options: TrainingOptions, clock: Clock) -> None:
        self._refusals = Refusals(clock)
        self._ledger = Ledger(
            clock,
            Processes(options.procfs, PROCFS),
            options.max_jobs,
            options.max_ranks,
            owners=options.owners,
        )
        self._failure_logged_at = float("-inf")
        inbox = Inbox(self._take, self._refusals, clock)
        super().__init__(options.paths, options.access, inbox, clock)

    def reports(self) -> tuple[TrainingReport, ...]:
        """Return the last report of each process, unless that is more than five minutes ago."""
        self._inbox.read()
        return self._ledger.reports()

    @property
    def received_total(self) -> int:
        """How many reports were accepted, as of the last call of `reports`."""
        return self._ledger.taken_total

    @property
    def rejected_total(self) -> Mapping[str, int]:
        """How many reports were rejected, by reason."""
        return self._refusals.counts()

    @property
    def quota_hits_total(self) -> Mapping[str, int]:
        """How many of them exceeded a limit, by class of sender."""
        return self._refusals.quota_hits()

    def _take(self, arrival: Arrival) -> None:
        claim = decode(arrival.data)
        self._ledger.take(claim, arrival)
        now = self._clock.monotonic()
        if claim.errors and claim.error and now - self._failure_logged_at >= LOG_INTERVAL_SECONDS:
            self._failure_logged_at = now
            log.warning(
                "the client in training job %s, rank %d, had %d failures; the first: %s",
                claim.job,
                claim.rank,
                claim.errors,
                one_line(claim.error),
            )
