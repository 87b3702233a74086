# SPDX-License-Identifier: Apache-2.0
"""The workloads on simulated GPUs, as the kubelet, Slurm and a runtime would report them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from uuid import NAMESPACE_DNS, uuid5

from exporter.clock import Clock
from exporter.model.snapshot import SourceState
from exporter.model.workload import (
    Allocation,
    DeviceName,
    Membership,
    Scheduler,
    Workload,
    WorkloadReport,
)

RUNTIME_OF_PODS = "containerd"


@dataclass(frozen=True, slots=True)
class Work:
    """The workloads that a scenario puts on a GPU."""

    workloads: tuple[Workload, ...] = ()
    """The process on it, if there is one, is of the first."""
    allocated: bool = False
    """Whether schedulers have given them the GPU."""


NO_WORK = Work()
OnGpu = tuple[str, Work]
"""The UUID of a GPU, and what is on it."""


@lru_cache(maxsize=1024)
def identified(work: Work, identity: str) -> Work:
    """Return the same with the ids that schedulers and runtimes of this node would give them."""
    return replace(work, workloads=tuple(_identified(each, identity) for each in work.workloads))


def _identified(workload: Workload, identity: str) -> Workload:
    if workload.scheduler == "kubernetes":
        uid = uuid5(NAMESPACE_DNS, f"{identity}/{workload.namespace}/{workload.pod}")
        return replace(workload, id=str(uid))
    if workload.scheduler == "container":
        return replace(workload, id=_container_id(workload, identity))
    return workload


def _container_id(workload: Workload, salt: str) -> str:
    return hashlib.sha256(f"{salt}/{workload.container}".encode()).hexdigest()


def membership(work: Work) -> Membership | None:
    """Return what the control group of the process on a GPU says; None without a workload."""
    if not work.workloads:
        return None
    first = work.workloads[0]
    if first.scheduler == "slurm":
        return Membership(slurm_job=first.job, slurm_step=first.step or None)
    if first.scheduler == "container":
        return Membership(container_id=first.id, runtime=first.runtime)
    return Membership(
        pod_uid=first.id, container_id=_container_id(first, first.id), runtime=RUNTIME_OF_PODS
    )


class SimulatedWorkloads:
    """One scheduler or runtime of the simulated node."""

    def __init__(
        self, scheduler: Scheduler, gpus: Callable[[], Sequence[OnGpu]], clock: Clock
    ) -> None:
        """Report from `gpus()`, which returns the work on each GPU as last read."""
        self.name: str = scheduler
        self._scheduler = scheduler
        self._gpus = gpus
        self._clock = clock
        self._seen: Sequence[OnGpu] | None = None
        self._report = WorkloadReport()
        self._asked_at = clock.monotonic()

    def start(self) -> None:
        """Begin; there is nothing to open."""

    def stop(self) -> None:
        """End; there is nothing to close."""

    def report(self) -> WorkloadReport:
        """Return what is known now, the same object until it changes."""
        gpus = self._gpus()
        self._asked_at = self._clock.monotonic()
        if gpus != self._seen:
            self._seen = gpus
            self._report = _report(self._scheduler, gpus)
        return self._report

    @property
    def state(self) -> SourceState:
        """How it is doing; it always answers."""
        return SourceState(up=True, age_seconds=self._clock.monotonic() - self._asked_at)


def _report(scheduler: Scheduler, gpus: Sequence[OnGpu]) -> WorkloadReport:
    found = [
        (uuid, workload, work.allocated)
        for uuid, work in gpus
        for workload in work.workloads
        if workload.scheduler == scheduler
    ]
    named: dict[str, Workload] = {}
    for _, workload, _ in found:
        named.update(_names(workload))
    return WorkloadReport(
        allocations=tuple(
            # A GPU is given to a whole job; only a process is of a step.
            Allocation(DeviceName(uuid=uuid), replace(workload, step=""))
            for uuid, workload, allocated in found
            if allocated
        ),
        allocates=scheduler != "container",
        named=named,
    )


def _names(workload: Workload) -> Mapping[str, Workload]:
    """Return the names by which a control group may refer to it."""
    if workload.scheduler == "slurm":
        return {workload.job: workload}
    if workload.scheduler == "container":
        return {workload.id: workload}
    return {
        workload.id: replace(workload, container=""),
        _container_id(workload, workload.id): workload,
    }
