# SPDX-License-Identifier: Apache-2.0
"""Whose work is on a share by the control groups of its processes: containers and Slurm's steps."""

from __future__ import annotations

from dataclasses import replace

from exporter.derive.workloads import OnShare, ShareKey, work_of_shares
from exporter.model.reading import Device, Process
from exporter.model.workload import (
    NO_WORK,
    Allocation,
    DeviceName,
    Membership,
    ShareWork,
    Workload,
    WorkloadReport,
)

ID, OTHER_ID = "a" * 64, "b" * 64
UID = "8f9ba0f5-8b5f-4d6a-a3d1-0a1b2c3d4e5f"
GPU = Device(uuid="GPU-1", index=0, name="NVIDIA H100")
IN_DOCKER = Membership(container_id=ID, runtime="docker")
IN_A_POD = Membership(pod_uid=UID, container_id=ID)
IN_A_JOB = Membership(slurm_job="7", slurm_step="0")
PROLOG = WorkloadReport(
    (Allocation(DeviceName(uuid="GPU-1"), Workload("slurm", job="7", user="bob")),), allocates=True
)
NAMED = WorkloadReport(
    named={ID: Workload("container", container="llm", id=ID, runtime="docker")},
)


def work(*members: Membership | None, reports: tuple[WorkloadReport, ...] = ()) -> ShareWork:
    """Whose work is on a GPU with a process in each of these groups; they are numbered from 1."""
    processes = [
        Process(pid, "compute", owner="alice", membership=each)
        for pid, each in enumerate(members, 1)
    ]
    return work_of_shares(reports, [OnShare(GPU, None, tuple(processes))])[ShareKey("GPU-1", None)]


def test_the_id_needs_nobody() -> None:
    """Without any source a container is known by its id and its runtime; nobody allocates."""
    container = Workload("container", id=ID, runtime="docker")
    assert work(IN_DOCKER, None) == ShareWork((container,), None, {1: container})
    assert work(None) == NO_WORK


def test_a_runtime_gives_the_name() -> None:
    """All processes of a container are one workload."""
    container = Workload("container", container="llm", id=ID, runtime="docker")
    found = work(IN_DOCKER, IN_DOCKER, reports=(NAMED,))
    assert found == ShareWork((container,), None, {1: container, 2: container})


def test_a_path_without_the_runtime_takes_that_of_who_names_it() -> None:
    """Under a parent of one's own the path has only the id."""
    container = Workload("container", container="llm", id=ID, runtime="docker")
    assert work(Membership(container_id=ID), reports=(NAMED,)).workloads == (container,)
    other = Workload("container", id=OTHER_ID)
    assert work(Membership(container_id=OTHER_ID), reports=(NAMED,)).workloads == (other,)


def test_a_container_of_a_pod_is_the_pods() -> None:
    """Also where Docker, which runs it for the kubelet, has a name for it."""
    pod = Workload("kubernetes", "team-a", "notebook-7", "main", id=UID)
    kubelet = WorkloadReport(
        allocations=(Allocation(DeviceName(uuid="GPU-1"), pod),),
        allocates=True,
        named={UID: Workload("kubernetes", "team-a", "notebook-7", id=UID)},
    )
    for reports in ((kubelet, NAMED), (kubelet,), (NAMED, kubelet)):
        assert work(IN_A_POD, reports=reports) == ShareWork((pod,), True, {1: pod})
    assert work(IN_A_POD, reports=(NAMED,)).workloads == (Workload("kubernetes", id=UID),)


def test_a_container_beside_the_pod_that_has_the_gpu() -> None:
    """Somebody went past the kubelet: both are seen, and the GPU stays given to the pod."""
    pod = Workload("kubernetes", "team-a", "notebook-7", "main")
    kubelet = WorkloadReport((Allocation(DeviceName(uuid="GPU-1"), pod),), allocates=True)
    found = work(IN_DOCKER, reports=(kubelet, NAMED))
    assert [each.scheduler for each in found.workloads] == ["container", "kubernetes"]
    assert found.allocated is True


def test_a_process_completes_the_allocation_of_a_job() -> None:
    """One series: that of its step, with the user that the file names before the process' owner."""
    step = Workload("slurm", job="7", user="bob", step="0")
    assert work(IN_A_JOB, reports=(PROLOG,)) == ShareWork((step,), True, {1: step})


def test_a_process_of_a_job_needs_no_file() -> None:
    """Without a folder of the prolog, what is free is not known."""
    step = Workload("slurm", job="7", user="alice", step="0")
    assert work(IN_A_JOB) == ShareWork((step,), None, {1: step})


def test_a_sluid_is_the_job_that_the_source_names() -> None:
    """With its user; where it is not known, the SLUID alone identifies the job."""
    sluid = "s01ARZ3NDEKTSV"
    member = Membership(slurm_id=sluid, slurm_step="batch")
    known = Workload("slurm", job="7", user="bob", id=sluid)
    named = WorkloadReport(named={sluid: known})
    assert work(member, reports=(named,)).workloads == (replace(known, step="batch"),)
    unknown = Workload("slurm", user="alice", step="batch", id=sluid)
    assert work(member).workloads == (unknown,)


def test_a_file_that_is_in_doubt_leaves_only_its_gpu_open() -> None:
    """Unless another file names it."""
    empty = WorkloadReport(allocates=True)
    for report, index, allocated in ((empty, 0, None), (empty, 3, False), (PROLOG, 0, True)):
        doubted = replace(report, in_doubt=(DeviceName(index=index),))
        assert work(reports=(doubted,)).allocated is allocated
