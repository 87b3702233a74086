# SPDX-License-Identifier: Apache-2.0
"""The interfaces of the sources that the publisher reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from exporter.model.host import Seen
from exporter.model.reading import SlotReport, XidRecord
from exporter.model.snapshot import SourceState
from exporter.model.training import Collectives, TrainingReport
from exporter.model.workload import WorkloadReport


@dataclass(frozen=True, slots=True)
class CounterState:
    """The state of a counter source that reads all GPUs at once."""

    up: bool
    failures_total: int = 0
    read_seconds: float | None = None


NO_COUNTER_STATES: Mapping[str, CounterState] = MappingProxyType({})


class Readers(Protocol):
    """The readings of every GPU, by the driver, a simulation or a recording."""

    name: str
    """The source whose state the publisher shows for these readings: nvml, replay, simulate."""

    def round(self, wait_seconds: float) -> None:
        """Start a round of readings and wait up to `wait_seconds` for it."""

    def reports(self) -> Sequence[SlotReport]:
        """Return the last report on every GPU."""

    def xids(self) -> Mapping[str, Mapping[int, XidRecord]]:
        """Return the Xids seen so far, by UUID."""

    def devices(self) -> Mapping[str, int]:
        """Return the number of GPUs by observer: pci, driver, nvml."""

    @property
    def problem(self) -> str | None:
        """Why no GPU can be read at all, in one line."""

    @property
    def failed_initialisations(self) -> int:
        """How often the driver library could not be initialised."""

    @property
    def counter_states(self) -> Mapping[str, CounterState]:
        """The counter sources in use that read all GPUs at once."""


class TrainingReports(Protocol):
    """The reports of training jobs, from a socket or simulated."""

    name: str

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
        """How many of them exceeded a limit, by the names of ``TRAINING_SENDERS``."""

    @property
    def up(self) -> bool:
        """Whether reports can arrive."""


class NodeSource(Protocol):
    """A source of the node, beside those of its GPUs."""

    name: str
    """The source whose state the publisher shows for it: kubernetes, slurm, container, ..."""

    @property
    def state(self) -> SourceState | None:
        """Its state, with the age of what stays in use; None while the source is not in use."""


class WorkloadSource(NodeSource, Protocol):
    """The workloads on the node's GPUs, by a scheduler or a container runtime."""

    def report(self) -> WorkloadReport | None:
        """Return the last good report, the same object until it changes; None before the first."""


class HostSource(NodeSource, Protocol):
    """The states of the threads of processes on this node."""

    def watch(self, pids: frozenset[int]) -> None:
        """Sample these processes from now on, and no others."""

    def take(self) -> Mapping[int, Seen]:
        """Return by pid what was seen since the last call."""


class CollectiveSource(NodeSource, Protocol):
    """The state of a job on this node by its collectives library (NCCL)."""

    def collectives(self) -> Collectives | None:
        """Return the last answer; None while no job answers."""
