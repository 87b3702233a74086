# SPDX-License-Identifier: Apache-2.0
"""The workloads on simulated GPUs as schedulers report them, and training jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from uuid import NAMESPACE_DNS, uuid5

from exporter.clock import Clock
from exporter.model.snapshot import SourceState
from exporter.model.training import TrainingTotals
from exporter.model.workload import (
    Allocation,
    DeviceName,
    Membership,
    Scheduler,
    Workload,
    WorkloadReport,
)
from exporter.sources.interface import AlwaysOn
from exporter.sources.simulate.waves import Rates

RUNTIME_OF_PODS = "containerd"
CYCLES_PER_STEP = 3e8
"""SM clock x tensor activity: about four steps a second at 1.98 GHz and 60 %. Each step is as much
work, so that a job slows down with its GPU."""
SAMPLES_PER_STEP = 256
HIDDEN_WAIT_RATIO = 0.01
"""Host time in the loader while the GPU works: prefetching hides it."""
PHASE_RATIOS: Mapping[str, float] = {
    "data": HIDDEN_WAIT_RATIO,
    "h2d": 0.01,
    "forward": 0.30,
    "backward": 0.55,
    "optimizer": 0.08,
    "checkpoint": 0.004,
    "eval": 0.0,
    "logging": 0.006,
    "other": 0.04,
}
"""How the working time is divided into phases, on the host."""
MODEL_FLOPS_RATIO = 0.9
"""Of the operations of the tensor cores; the rest is recomputation."""


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
    """Return the workloads with ids as schedulers and runtimes of this node assign them."""
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
    """Return the workload that the process's cgroup names; None without one."""
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


class SimulatedWorkloads(AlwaysOn):
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
        self._reported_at = clock.monotonic()

    def report(self) -> WorkloadReport:
        """Return the present report, the same object until it changes."""
        gpus = self._gpus()
        self._reported_at = self._clock.monotonic()
        if gpus != self._seen:
            self._seen = gpus
            self._report = _report(self._scheduler, gpus)
        return self._report

    @property
    def state(self) -> SourceState:
        """Always up."""
        return SourceState(up=True, age_seconds=self._clock.monotonic() - self._reported_at)


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
    if workload.scheduler == "slurm":
        return {workload.job: workload}
    if workload.scheduler == "container":
        return {workload.id: workload}
    return {
        workload.id: replace(workload, container=""),
        _container_id(workload, workload.id): workload,
    }


def job_name(owner: str) -> str:
    """Return the name of the training job of a simulated user."""
    return f"{owner}-training"


def training_totals(done: Rates, tensor_flops_per_cycle: float | None) -> TrainingTotals:
    """Return a job's totals from its GPU's, `done`, both integrals since the start.

    `tensor_flops_per_cycle` is what the whole GPU does in an SM clock at full tensor activity.
    """
    worked = done.trained - done.stalled - done.waited
    phases = {phase: ratio * worked for phase, ratio in PHASE_RATIOS.items()}
    phases["data"] += done.stalled
    phases["other"] += done.waited
    steps = float(int(done.tensor_cycles / CYCLES_PER_STEP))
    return TrainingTotals(
        steps=steps,
        batches=steps,
        samples=steps * SAMPLES_PER_STEP,
        step_seconds=done.trained,
        phase_seconds=phases,
        phase_gpu_idle_seconds={"data": done.stalled, "checkpoint": 0.0, "logging": 0.0},
        model_flops=(
            None
            if tensor_flops_per_cycle is None
            else MODEL_FLOPS_RATIO * tensor_flops_per_cycle * done.tensor_cycles
        ),
    )
