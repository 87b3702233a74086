# SPDX-License-Identifier: Apache-2.0
"""Whose work is on a share whose processes are in containers, with and without their names."""

from __future__ import annotations

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
NAMED = WorkloadReport(
    named={ID: Workload("container", container="llm", id=ID, runtime="docker")},
)


def work(*members: Membership | None, reports: tuple[WorkloadReport, ...] = ()) -> ShareWork:
    """Whose work is on a GPU with a process in each of these groups; they are numbered from 1."""
    processes = [Process(pid, "compute", membership=each) for pid, each in enumerate(members, 1)]
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
