# SPDX-License-Identifier: Apache-2.0
"""The workloads on a GPU, as schedulers and container runtimes name them: frozen data."""

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
    job: str = ""
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
    runtime: str | None = None
    """docker, podman, containerd or cri-o."""
    slurm_job: str | None = None
    slurm_step: str | None = None
    slurm_id: str | None = None
    """The SLUID of the job, where the path has that instead of its number."""


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A GPU or MIG instance as a scheduler names it; the first known field counts."""

    mig_uuid: str | None = None
    uuid: str | None = None
    index: int | None = None
    """As the driver numbers GPUs."""
    minor: int | None = None
    """The N of /dev/nvidiaN."""
    gpu_instance: int | None = None
    """With one of the last three: this MIG instance of that GPU."""
    profile: str | None = None
    """Or one of the instances with this profile (lower case, without dots; empty for any)."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """A device and the workload that a scheduler allocated it to."""

    device: DeviceName
    workload: Workload
    replica: str = ""
    claim: str = ""
    """NAMESPACE/NAME of its resource claim."""


@dataclass(frozen=True, slots=True)
class WorkloadReport:
    """The report of one workload source on the whole node."""

    allocations: tuple[Allocation, ...] = ()
    allocates: bool = False
    """Whether the list is complete, so that all other devices are free."""
    named: Mapping[str, Workload] = field(default_factory=dict)
    """By a value of `Membership`: the workload with its names."""
    pod_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By NAMESPACE/POD: the labels of the pod that are published."""
    in_doubt: tuple[DeviceName, ...] = ()
    """Devices whose allocation is not known."""


@dataclass(frozen=True, slots=True)
class ShareWork:
    """The workloads on one share of a GPU."""

    workloads: tuple[Workload, ...] = ()
    """The workloads that it is allocated to or that have a process on it, by name."""
    allocated: bool | None = None
    """Whether a scheduler has allocated it; None without a scheduler."""
    of_process: Mapping[int, Workload] = field(default_factory=dict)
    """By pid: the workload of each process of the share that belongs to one."""
    left_out: int = 0
    """How many workloads are left out: a share has a bounded number."""


NO_WORK = ShareWork()
