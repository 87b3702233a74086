# SPDX-License-Identifier: Apache-2.0
"""The interfaces between rooms: who hands readings and reports to the publisher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from exporter.model.reading import SlotReport, XidRecord
from exporter.model.snapshot import SourceState
from exporter.model.training import Collectives, TrainingReport
from exporter.model.workload import WorkloadReport


@dataclass(frozen=True, slots=True)
class CounterState:
    """The state of a counter source that reads all GPUs at once."""

    up: bool
    """Whether it answers."""
    failures_total: int = 0
    """Failed reads that are of no GPU in particular."""
    read_seconds: float | None = None
    """How long the last read took that was of all of them."""


NO_COUNTER_STATES: Mapping[str, CounterState] = MappingProxyType({})


class Readers(Protocol):
    """Hands over the readings of every GPU: the driver's fleet, a simulation or a recording."""

    name: str
    """The source whose state the publisher shows for these readings: nvml, replay, simulate."""

    def round(self, wait_seconds: float) -> None:
        """Ask for a round of readings and wait for it, at most so long."""

    def reports(self) -> Sequence[SlotReport]:
        """Return what is known of every GPU."""

    def xids(self) -> Mapping[str, Mapping[int, XidRecord]]:
        """Return the Xids seen so far, by UUID."""

    def devices(self) -> Mapping[str, int]:
        """Return how many GPUs are counted, by who counts: pci, driver, nvml."""

    @property
    def problem(self) -> str | None:
        """Why no GPU can be read at all, in one line."""

    @property
    def failed_initialisations(self) -> int:
        """How often the driver library could not be initialised."""

    @property
    def counter_states(self) -> Mapping[str, CounterState]:
        """How the counter sources are doing that read all GPUs at once, those in use."""


class TrainingReports(Protocol):
    """Hands over the reports of training jobs: those of a socket, or simulated ones."""

    name: str
    """The source whose state the publisher shows for these reports."""

    def reports(self) -> Sequence[TrainingReport]:
        """Return the last report of every process."""

    @property
    def received_total(self) -> int:
        """How many reports were accepted."""

    @property
    def rejected_total(self) -> Mapping[str, int]:
        """How many reports were refused; every reason is listed."""

    @property
    def quota_hits_total(self) -> Mapping[str, int]:
        """How many of them reached a limit, by the names of ``TRAINING_SENDERS``."""

    @property
    def up(self) -> bool:
        """Whether reports can arrive."""


class WorkloadSource(Protocol):
    """Hands over whose work is on the GPUs of the node: what a scheduler or a runtime knows."""

    name: str
    """The source whose state the publisher shows for it: kubernetes, slurm, container."""

    def report(self) -> WorkloadReport | None:
        """Return what was known last, the same object until it changes; None if nothing ever was.

        The last good word stays while the source cannot be read.
        """

    @property
    def state(self) -> SourceState | None:
        """How it is doing, with the age of what `report` returns; None while it is not in use:
        neither asked for nor there."""


class CollectiveSource(Protocol):
    """Hands over what the library of collectives says of a job on this node."""

    name: str
    """The source whose state the publisher shows for it."""

    def collectives(self) -> Collectives | None:
        """Return what it says now; None while no job answers."""

    @property
    def state(self) -> SourceState | None:
        """How it is doing."""
