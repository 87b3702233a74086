# SPDX-License-Identifier: Apache-2.0
"""Whose work is on a GPU, as schedulers and container runtimes call it: frozen data, no logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Scheduler = Literal["kubernetes", "slurm", "container"]
SCHEDULERS: tuple[str, ...] = get_args(Scheduler)


@dataclass(frozen=True, slots=True)
class Workload:
    """One container of a pod, one step of a Slurm job, or one container; "" is "not known"."""

    scheduler: Scheduler
    namespace: str = ""
    pod: str = ""
    container: str = ""
    """Its name; of a container that has none, or whose name is not known, empty."""
    job: str = ""
    """Slurm's job id."""
    user: str = ""
    step: str = ""
    """Of the job: a number, batch, extern or interactive."""
    id: str = ""
    """The UID of the pod, the SLUID of the job, the id of the container."""
    runtime: str = ""
    """Of a container: docker, podman, containerd, cri-o."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The workload of a process as its control group names it; None where it does not."""

    pod_uid: str | None = None
    container_id: str | None = None
    """64 hexadecimal digits."""
    runtime: str | None = None
    """docker, podman, containerd or cri-o."""
    slurm_job: str | None = None
    slurm_step: str | None = None
    slurm_id: str | None = None
    """The SLUID of the job, where the path has that instead of its number."""


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A GPU or MIG instance as a scheduler names it, by the first of these that it has."""

    mig_uuid: str | None = None
    uuid: str | None = None
    """Of the physical GPU."""
    index: int | None = None
    """As the driver numbers GPUs."""
    minor: int | None = None
    """The N of /dev/nvidiaN."""
    gpu_instance: int | None = None
    """With one of the last three: this MIG instance of that GPU."""
    profile: str | None = None
    """Instead of it: an instance of this profile, written without dots and in small letters (any
    where it is empty), of which the GPU may have several."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One device that a scheduler gave away, and to whom."""

    device: DeviceName
    workload: Workload
    replica: str = ""
    """Which replica of a device that several may have."""
    claim: str = ""
    """NAMESPACE/NAME of the resource claim that it came by."""


@dataclass(frozen=True, slots=True)
class WorkloadReport:
    """What one source of workloads knows of the whole node."""

    allocations: tuple[Allocation, ...] = ()
    allocates: bool = False
    """Whether these are all: what is not among them is given to nobody."""
    named: Mapping[str, Workload] = field(default_factory=dict)
    """By what a `Membership` has: the UID of a pod, the id of a container, or the number or SLUID
    of a Slurm job. What is known of it beyond that."""
    pod_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By NAMESPACE/POD: the labels of the pod that are published."""
    in_doubt: tuple[DeviceName, ...] = ()
    """Devices of which it is not known whether they are given to somebody else, or at all."""


@dataclass(frozen=True, slots=True)
class ShareWork:
    """Whose work is on one share of a GPU."""

    workloads: tuple[Workload, ...] = ()
    """Those that it is given to, and those that have a process on it; each once, in the order of
    their names."""
    allocated: bool | None = None
    """By the word of the schedulers; None where none of them says."""
    of_process: Mapping[int, Workload] = field(default_factory=dict)
    """By pid: the workload of each process of the share that belongs to one."""
    left_out: int = 0
    """How many workloads more there are: a share has a bounded number."""


NO_WORK = ShareWork()
