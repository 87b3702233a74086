# SPDX-License-Identifier: Apache-2.0
"""Whose work is on a share, by the names that schedulers have for it and by control groups.

GPUs, instances, pods, containers and the steps of Slurm's jobs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from exporter.derive.workloads import OnShare, work_of_shares
from exporter.model.reading import Device, Instance, Place, Process
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
WHOLE = Device(0, "GPU-0", "H100", minor_number=3)
SECOND = Device(1, "GPU-1", "H100", minor_number=0)
INSTANCES = (
    Instance(7, 0, "1g.10gb", "MIG-7"),
    Instance(8, 0, "1g.10gb+me", "MIG-8"),
    Instance(9, 0, "1g.10gb", "MIG-9"),
    Instance(2, 0, "3g.40gb", "MIG-2"),
)
DIVIDED = Device(2, "GPU-2", "H100", minor_number=1, mig=True, instances=INSTANCES)
SHARES = [
    *(OnShare(device, None, ()) for device in (WHOLE, SECOND)),
    *(OnShare(DIVIDED, instance.gpu_instance, ()) for instance in INSTANCES),
]
IN_DOCKER = Membership(container_id=ID, runtime="docker")
IN_A_POD = Membership(pod_uid=UID, container_id=ID, runtime="containerd")
IN_A_JOB = Membership(slurm_job="7", slurm_step="0")
NAMED = WorkloadReport(
    named={ID: Workload("container", container="llm", id=ID, runtime="docker")},
)


def given(*devices: tuple[DeviceName, Workload], **named: Workload) -> WorkloadReport:
    """The report of a scheduler that has given these away, and no others."""
    return WorkloadReport(tuple(Allocation(*each) for each in devices), True, named)


PROLOG = given((DeviceName(index=0), Workload("slurm", job="7", user="bob")))


def pod(name: str = "one", container: str = "main", uid: str = "") -> Workload:
    return Workload("kubernetes", "team-a", name, container, id=uid)


def process(pid: int, member: Membership | None) -> Process:
    return Process(pid, "compute", owner="alice", membership=member)


def work(*members: Membership | None, reports: tuple[WorkloadReport, ...] = ()) -> ShareWork:
    """Whose work is on a GPU with a process in each of these groups; they are numbered from 1."""
    processes = tuple(process(pid, each) for pid, each in enumerate(members, 1))
    return work_of_shares(reports, [OnShare(WHOLE, None, processes)])[Place("GPU-0", None)]


def allocated(report: WorkloadReport) -> list[bool | None]:
    """Which of `SHARES` are allocated."""
    return [each.allocated for each in work_of_shares([report], SHARES).values()]


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        (DeviceName(uuid="GPU-1"), [1]),
        (DeviceName(index=0), [0]),
        (DeviceName(minor=0), [1]),
        (DeviceName(minor=3), [0]),
        (DeviceName(uuid="GPU-2"), [2, 3, 4, 5]),
        (DeviceName(mig_uuid="MIG-8"), [3]),
        (DeviceName(minor=1, gpu_instance=9), [4]),
        (DeviceName(uuid="GPU-2", gpu_instance=2), [5]),
        (DeviceName(uuid="GPU-2", gpu_instance=5), []),
        (DeviceName(mig_uuid="MIG-1"), []),
        (DeviceName(uuid="GPU-9"), []),
        (DeviceName(minor=1, profile="3g40gb"), [5]),
        (DeviceName(minor=1, profile="1g10gb-me"), [3]),
        (DeviceName(minor=1, profile="7g80gb"), []),
        (DeviceName(minor=3, profile=""), []),
        (DeviceName(), []),
    ],
)
def test_a_scheduler_names_a_share_in_many_ways(name: DeviceName, numbers: list[int]) -> None:
    """The others are free, as it names all that it gave away."""
    assert allocated(given((name, pod()))) == [number in numbers for number in range(6)]


@pytest.mark.parametrize(
    ("profile", "open_ones"), [("1g10gb", [2, 4]), ("", [2, 3, 4, 5])], ids=["profile", "any"]
)
def test_one_instance_of_several_is_given_but_not_which(profile: str, open_ones: list[int]) -> None:
    """Of these it is not known that they are free; of one that is given besides, that it is not."""
    unclear = (DeviceName(minor=1, profile=profile), pod())
    known = (DeviceName(mig_uuid="MIG-9"), pod("two"))

    assert allocated(given(unclear)) == [
        None if number in open_ones else False for number in range(6)
    ]
    found = work_of_shares([given(unclear, known)], SHARES)
    assert found[Place("GPU-2", 9)] == ShareWork((pod("two"),), True)
    assert found[Place("GPU-2", 7)] == NO_WORK


def test_a_process_belongs_to_the_container_that_the_pods_api_knows() -> None:
    """One workload, not a second one beside what is given; of two containers, its own."""
    main, side = pod(uid=UID), pod(container="side", uid=UID)
    at = DeviceName(index=0)
    known = given((at, main), (DeviceName(index=1), main), **{UID: pod(container=""), ID: main})
    assert work(IN_A_POD, reports=(known,)) == ShareWork((main,), True, {1: main})
    assert work_of_shares([known], SHARES)[Place("GPU-1", None)] == ShareWork((main,), True)
    both = given((at, main), (at, side), **{UID: pod(container=""), ID: side})
    assert work(IN_A_POD, reports=(both,)) == ShareWork((main, side), True, {1: side})


def test_without_the_pods_api_a_pod_is_known_by_its_gpus() -> None:
    """It is the only one that has all of them; its container is the only one there."""
    one, two = pod(), pod("two")
    both = DeviceName(index=1)
    report = given((DeviceName(index=0), one), (both, one), (both, two))
    shares = [
        OnShare(device, None, (process(pid, IN_A_POD),))
        for pid, device in ((1, WHOLE), (2, SECOND))
    ]
    first, second = work_of_shares([report], shares).values()
    assert first.workloads == (one,)
    assert second == ShareWork((one, two), True, {2: one})


def test_the_id_needs_nobody() -> None:
    """Without any source a container is known by its id and its runtime; nobody allocates."""
    container = Workload("container", id=ID, runtime="docker")
    assert work(IN_DOCKER, None) == ShareWork((container,), None, {1: container})
    assert work(None) == NO_WORK


def test_a_runtime_gives_the_name() -> None:
    """All processes of a container are one workload. Where the path has only the id, as under a
    parent of one's own, the runtime is that of who names it."""
    container = Workload("container", container="llm", id=ID, runtime="docker")
    found = work(IN_DOCKER, IN_DOCKER, reports=(NAMED,))
    assert found == ShareWork((container,), None, {1: container, 2: container})
    assert work(Membership(container_id=ID), reports=(NAMED,)).workloads == (container,)
    other = Workload("container", id=OTHER_ID)
    assert work(Membership(container_id=OTHER_ID), reports=(NAMED,)).workloads == (other,)


def test_a_container_of_a_pod_is_the_pods() -> None:
    """Also where Docker, which runs it for the kubelet, has a name for it."""
    own = pod(uid=UID)
    kubelet = given((DeviceName(uuid="GPU-0"), own), **{UID: pod(container="", uid=UID)})
    for reports in ((kubelet, NAMED), (kubelet,), (NAMED, kubelet)):
        assert work(IN_A_POD, reports=reports) == ShareWork((own,), True, {1: own})
    assert work(IN_A_POD, reports=(NAMED,)).workloads == (Workload("kubernetes", id=UID),)


def test_a_container_beside_the_pod_that_has_the_gpu() -> None:
    """Somebody went past the kubelet: both are seen, and the GPU stays given to the pod."""
    found = work(IN_DOCKER, reports=(given((DeviceName(uuid="GPU-0"), pod())), NAMED))
    assert [each.scheduler for each in found.workloads] == ["container", "kubernetes"]
    assert found.allocated is True


def test_a_process_completes_the_allocation_of_a_job() -> None:
    """One series: that of its step, with the user that the file names before the process' owner.
    Without a folder of the prolog, what is free is not known."""
    step = Workload("slurm", job="7", user="bob", step="0")
    assert work(IN_A_JOB, reports=(PROLOG,)) == ShareWork((step,), True, {1: step})
    alone = replace(step, user="alice")
    assert work(IN_A_JOB) == ShareWork((alone,), None, {1: alone})


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
    for report, index, expected in ((empty, 0, None), (empty, 3, False), (PROLOG, 0, True)):
        doubted = replace(report, in_doubt=(DeviceName(index=index),))
        assert work(reports=(doubted,)).allocated is expected
