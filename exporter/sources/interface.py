# SPDX-License-Identifier: Apache-2.0
"""The interfaces of sources, and the rows of the table of sources in `table.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:  # the command line starts faster without them
    from exporter.clock import Clock
    from exporter.model.readers import CounterState
    from exporter.model.reading import Activity, Device
    from exporter.model.snapshot import SourceState
    from exporter.model.workload import WorkloadReport
    from exporter.sources.reading_state import Journal

DCGM = "dcgm"
CUPTI = "cupti"
KMSG = "kmsg"
TRAINING = "training"
KUBERNETES = "kubernetes"
SLURM = "slurm"
CONTAINER = "container"
NCCL_RAS = "nccl-ras"
PROC = "proc"
EVENT_SOURCES = frozenset({KMSG, TRAINING, PROC})
"""Sources that report only what happens from their start on; a command that reads the GPUs once
leaves them out."""


class CounterSource(Protocol):
    """The hardware counters of one GPU, opened; a share is None (whole GPU) or a GPU instance. A
    source that cannot be read notes why in the GPU's journal."""

    def measures(self, gpu_instance: int | None) -> bool:
        """Return whether this source is expected to give activities of this share."""

    def read(self, monotonic_seconds: float) -> Mapping[int | None, Activity]:
        """Return the activities since the last read, by share, as far as known.

        Raises:
            DeviceGone: the GPU is lost.
            LibraryUnavailable: the driver library must be initialised again.
        """

    def close(self) -> None:
        """Free the resources of this source."""


class NodeCounters(Protocol):
    """A counter source that reads all GPUs of the node at once, in a thread or process of its own,
    which starts and stops with the fleet."""

    def start(self) -> None:
        """Begin to read."""

    def stop(self) -> None:
        """End threads and processes; one that hangs is not waited for."""

    def open(self, gpu: OpenedGpu) -> CounterSource:
        """Return its counters of one GPU."""

    @property
    def state(self) -> CounterState | None:
        """Its state; None while it is neither configured nor there."""


@runtime_checkable
class Lendable(Protocol):
    """Node-wide counters that only one program can have: a profiler may want them for a while."""

    def pause(self) -> None:
        """Release them within 2 s, and leave them alone."""

    def resume(self) -> None:
        """Take them again."""


@dataclass(frozen=True, slots=True)
class CounterOptions:
    """The configuration of the counter sources that read all GPUs at once."""

    interval_seconds: float = 1.0
    """Between two rounds of the fleet."""
    dcgm_url: str | None = None
    dcgm_user: str | None = None
    dcgm_password: str | None = field(default=None, repr=False)
    dcgm_host: str | None = None
    dcgm_bindings: str | None = None
    cupti_duty: float = 1.0
    nvml_library: str | None = None
    """As the fleet loads it; None: as the dynamic linker finds it."""
    procfs: str = "/proc"


@dataclass(frozen=True, slots=True)
class OpenedGpu:
    """One GPU that NVML has opened, as a counter source gets it."""

    handle: Any
    """NVML's handle, of the present initialisation of the library."""
    device: Device
    gpu_instances: tuple[int | None, ...]
    """The shares: (None,) for the whole GPU, else the numbers of its GPU instances."""
    journal: Journal
    """Where the source notes what it cannot read; its `now` is the time of the present round."""
    wait: Callable[[float], float] | None = None
    """Waits so many seconds, which are few, and returns the monotonic time then; None: no waiting
    in a round."""
    node: Mapping[str, NodeCounters] = field(default_factory=dict)
    """By name: the enabled sources that read all GPUs at once."""
    better: Callable[[], bool] = lambda: False
    """Returns whether preferred sources measure every share now: then this one need not."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One source that can be switched on and off."""

    name: str
    """In metrics, logs and flags."""
    gives: str
    """The help of its flag, in one sentence."""
    enabled: bool = field(default=True, kw_only=True)
    """Whether it is on unless the configuration says otherwise."""

    @property
    def flag(self) -> str:
        """The flag that switches it."""
        return f"source.{self.name}"


@dataclass(frozen=True, slots=True)
class CounterRow(SourceRow):
    """One counter source."""

    open: Callable[[OpenedGpu], CounterSource] | None = None
    """Raises DeviceGone or LibraryUnavailable, as `CounterSource.read` does."""
    prepare: Callable[[CounterOptions, Clock], NodeCounters] | None = None
    """For a source that reads all GPUs at once, instead: it is called once, and its result is in
    `OpenedGpu.node`."""


class NodeWorkloads(Protocol):
    """A source of workloads (`exporter.model.readers.WorkloadSource`) that the daemon starts."""

    name: str

    def report(self) -> WorkloadReport | None:
        """Return the last report."""

    @property
    def state(self) -> SourceState | None:
        """Its state; None while it is not in use."""

    def start(self) -> None:
        """Start polling, in a thread of its own."""

    def stop(self) -> None:
        """Stop polling; do not wait for a call that hangs."""


class AlwaysOn:
    """A source without threads and files of its own: played or simulated."""

    def start(self) -> None:
        """Begin; there is nothing to open."""

    def stop(self) -> None:
        """End; there is nothing to close."""


CONTAINER_SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")
"""Where Docker and Podman listen."""


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """The configuration of the sources of workloads."""

    kubernetes_socket: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    kubernetes_pods_socket: str = "/var/lib/kubelet/pods-api/pods-api.sock"
    kubernetes_pod_labels: re.Pattern[str] | None = None
    kubernetes_resources: tuple[str, ...] = ()
    kubernetes_ignore_pods: re.Pattern[str] | None = None
    slurm_job_map: str = "/var/lib/dcgm-exporter/job-mapping"
    """The folder of prolog files that are named by the number of a GPU."""
    slurm_gpustat: str = "/run/gpustat"
    """The folder of prolog files that are named by the UUID of a GPU."""
    slurm_numbering: Literal["index", "minor"] = "index"
    container_sockets: tuple[str, ...] = CONTAINER_SOCKETS
    containers: Callable[[], frozenset[str]] = frozenset
    """Returns the ids of the containers that have a process on a GPU."""
    procfs: str = "/proc"
    sysfs: str = "/sys"
    owners: bool = True
    """Whether to say whose the jobs are."""


@dataclass(frozen=True, slots=True)
class WorkloadRow(SourceRow):
    """One source of workloads."""

    prepare: Callable[[WorkloadOptions, Clock], NodeWorkloads]
    """Return it, not started."""
