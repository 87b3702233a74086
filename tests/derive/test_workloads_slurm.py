# SPDX-License-Identifier: Apache-2.0
"""Whose Slurm jobs are on the shares: prolog files, numbered or not, beside processes in groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from exporter.derive.workloads import OnShare, ShareKey, work_of_shares
from exporter.model.reading import Device, Process
from exporter.model.workload import (
    Allocation,
    DeviceName,
    Membership,
    ShareWork,
    Workload,
    WorkloadReport,
)

GPUS = tuple(
    Device(uuid=f"GPU-{index}", index=index, name="NVIDIA H100", minor_number=minor)
    for index, minor in enumerate((2, 3, 0, 1))
)
"""As on a node whose device files are not in the order of the bus (jobstats' page has such)."""


def given(*pairs: tuple[DeviceName, str], user: str = "") -> WorkloadReport:
    """What Slurm gave away, as device and job."""
    return WorkloadReport(
        tuple(Allocation(device, Workload("slurm", job=job, user=user)) for device, job in pairs),
        allocates=True,
    )


def work(
    report: WorkloadReport, running: Mapping[int, str | Membership] | None = None
) -> list[ShareWork]:
    """Whose work is on each GPU, with a process of these jobs on those named; pid 100 + index."""
    shares = []
    for gpu in GPUS:
        who = (running or {}).get(gpu.index)
        member = Membership(slurm_job=who, slurm_step="0") if isinstance(who, str) else who
        process = Process(100 + gpu.index, "compute", owner="alice", membership=member)
        shares.append(OnShare(gpu, None, () if who is None else (process,)))
    found = work_of_shares([report], shares)
    return [found[ShareKey(gpu.uuid, None)] for gpu in GPUS]


def jobs(found: list[ShareWork]) -> list[list[str]]:
    """The jobs on each GPU."""
    return [[each.job for each in share.workloads] for share in found]


def allocated(found: list[ShareWork]) -> list[bool | None]:
    """Whether each GPU is given to somebody."""
    return [share.allocated for share in found]


def test_a_process_completes_the_allocation() -> None:
    """One series: that of its step, with the user that the file names before the process' owner."""
    found = work(given((DeviceName(uuid="GPU-1"), "7"), user="bob"), {1: "7"})
    step = Workload("slurm", job="7", user="bob", step="0")
    assert found[1] == ShareWork((step,), True, {101: step})


def test_a_process_needs_no_file() -> None:
    """Without a folder of the prolog, what is free is not known."""
    found = work(WorkloadReport(), {2: "7"})
    assert jobs(found) == [[], [], ["7"], []]
    assert allocated(found) == [None] * 4
    assert found[2].workloads[0].user == "alice"


def test_a_sluid_is_the_job_that_the_source_names() -> None:
    """With its user; where it is not known, the SLUID alone identifies the job."""
    sluid = "s01ARZ3NDEKTSV"
    member = Membership(slurm_id=sluid, slurm_step="batch")
    named = WorkloadReport(named={sluid: Workload("slurm", job="7", user="bob", id=sluid)})
    assert work(named, {0: member})[0].workloads == (
        Workload("slurm", job="7", user="bob", step="batch", id=sluid),
    )
    assert work(WorkloadReport(), {0: member})[0].workloads == (
        Workload("slurm", user="alice", step="batch", id=sluid),
    )


def test_a_file_that_is_in_doubt_leaves_only_its_gpu_open() -> None:
    """Unless another file names it."""
    report = given((DeviceName(index=0), "7"))
    doubted = (DeviceName(index=3), DeviceName(uuid="GPU-1"))
    assert allocated(work(replace(report, in_doubt=doubted))) == [True, None, False, None]
    both = given((DeviceName(index=0), "7"), (DeviceName(uuid="GPU-1"), "8"))
    assert allocated(work(replace(both, in_doubt=doubted))) == [True, True, False, None]
