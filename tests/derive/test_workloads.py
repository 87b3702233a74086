# SPDX-License-Identifier: Apache-2.0
"""Whose work is on a share: allocations joined with processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.idle import with_workload
from exporter.derive.workloads import (
    MOST_WORKLOADS,
    OnShare,
    pod_name,
    with_running,
    work_of_shares,
)
from exporter.model.reading import Device, Instance, Place, Process
from exporter.model.snapshot import Holder
from exporter.model.workload import (
    Allocation,
    DeviceName,
    Membership,
    ShareWork,
    Workload,
    WorkloadReport,
)

GPU0 = Device(0, "GPU-0", "NVIDIA A100", minor_number=3)
GPU1 = Device(1, "GPU-1", "NVIDIA A100", minor_number=2)
MIG = replace(
    GPU1,
    mig=True,
    instances=(
        Instance(1, 0, "1c.3g.20gb", "MIG-a"),
        Instance(1, 1, "2c.3g.20gb", "MIG-b"),
        Instance(5, 0, "1g.5gb", "MIG-c"),
    ),
)
TRAIN = Workload("kubernetes", "team-a", "train-0", "main")
NOTEBOOK = Workload("kubernetes", "team-b", "notebook-7", "jupyter")
UID = "5d1b2b0e-3f77-4d3a-9a39-0c6a3a0a5b11"
OTHER_UID = "5d1b2b0e-3f77-4d3a-9a39-0c6a3a0a5b22"


def given_to(workload: Workload, **name: object) -> Allocation:
    return Allocation(DeviceName(**name), workload)  # type: ignore[arg-type]


def kubelet(*allocations: Allocation, **known: Workload) -> WorkloadReport:
    return WorkloadReport(allocations, allocates=True, named=known)


def in_pod(pid: int, uid: str = UID, container: str | None = None) -> Process:
    return Process(pid, "compute", membership=Membership(pod_uid=uid, container_id=container))


def in_job(pid: int, job: str, step: str | None = "0", owner: str | None = "ada") -> Process:
    member = Membership(slurm_job=job, slurm_step=step)
    return Process(pid, "compute", owner=owner, membership=member)


def on(device: Device, *processes: Process, instance: int | None = None) -> OnShare:
    return OnShare(device, instance, processes)


def work(reports: list[WorkloadReport], *shares: OnShare) -> list[ShareWork]:
    found = work_of_shares(reports, shares)
    return [found[share.key] for share in shares]


def test_the_only_pod_of_a_gpu_has_its_processes() -> None:
    """Without the pods API nothing else says which pod a UID is. It has the UID only as long as
    the process, so the pod is named without it: no series comes and goes with processes."""
    report = kubelet(given_to(TRAIN, uuid="GPU-0"))
    [found] = work([report], on(GPU0, in_pod(7)))
    assert found == ShareWork((TRAIN,), True, {7: TRAIN})
    assert work([report], on(GPU0))[0].workloads == found.workloads


def test_what_cannot_be_told_apart_is_not_guessed() -> None:
    """Two pods share the GPU, or two UIDs are on that of one pod."""
    shared = kubelet(given_to(TRAIN, uuid="GPU-0"), given_to(NOTEBOOK, uuid="GPU-0"))
    [found] = work([shared], on(GPU0, in_pod(7)))
    assert found == ShareWork((TRAIN, NOTEBOOK), allocated=True)

    single = kubelet(given_to(TRAIN, uuid="GPU-0"))
    [found] = work([single], on(GPU0, in_pod(7), in_pod(8, OTHER_UID)))
    assert found == ShareWork((TRAIN,), allocated=True)


def test_a_job_of_which_the_prolog_wrote_nothing_may_have_been_given_its_gpu() -> None:
    """It is shown there, and 0 would deny it; what no file and no job is on is free."""
    bob = Workload("slurm", job="12", user="bob")
    prolog = WorkloadReport((given_to(bob, uuid="GPU-0"),), allocates=True)
    for processes, allocated in (
        ([in_job(7, "13")], None),
        ([Process(7, "compute", membership=Membership(slurm_id="s01KABCDEFGHJK"))], None),
        # What a job has that it was not given, or what is in no job, says nothing of files.
        ([in_job(7, "12")], False),
        ([in_pod(7)], False),
        ([], False),
    ):
        _, other = work([prolog], on(GPU0), on(GPU1, *processes))
        assert other.allocated is allocated
    assert work([WorkloadReport(allocates=True)], on(GPU0, in_job(7, "13")))[0].allocated is None


def test_what_processes_say_of_a_job_stays_while_it_has_the_gpu() -> None:
    """The user and the last step: no series comes and goes with a process."""
    report = WorkloadReport((given_to(Workload("slurm", job="12"), uuid="GPU-0"),), allocates=True)
    before: dict[Place, ShareWork] = {}
    seen: list[list[tuple[str, str]]] = []
    for processes in (
        [],
        [in_job(7, "12", "0")],
        [],
        [in_job(8, "12", "0", owner="root")],
        [in_job(8, "12", "0", owner="root"), in_job(9, "12", "1")],
        [in_job(9, "12", "1")],
        [],
    ):
        before = work_of_shares([report], [on(GPU0, *processes)], before)
        [found] = before.values()
        assert found.allocated is True
        assert {each.job for each in found.workloads} == {"12"}
        seen.append([(each.user, each.step) for each in found.workloads])
    first, second = ("ada", "0"), ("ada", "1")
    assert seen == [
        [("", "")],
        [first],
        [first],
        [first],
        [first, second],
        [second],
        [second],
    ]
    [gone] = work_of_shares([WorkloadReport(allocates=True)], [on(GPU0)], before).values()
    assert gone == ShareWork((), allocated=False)


def test_the_holder_belongs_to_the_workload_of_its_process() -> None:
    """Of several; without processes that are known, the only one there is."""
    holder = Holder("root", "python3", pid=8)
    several = ShareWork((TRAIN, NOTEBOOK), True, {7: TRAIN, 8: NOTEBOOK})
    assert with_workload(holder, several) == replace(holder, workload=NOTEBOOK)
    assert with_workload(holder, ShareWork((TRAIN,), True)) == replace(holder, workload=TRAIN)
    assert with_workload(holder, ShareWork((TRAIN, NOTEBOOK), True)) == holder
    assert with_workload(holder, ShareWork((TRAIN,), True, {7: TRAIN})) == holder
    assert with_workload(None, several) is None


PODS = st.builds(
    Workload,
    st.just("kubernetes"),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["", "main", "side"]),
)
NAMES = st.builds(
    DeviceName,
    uuid=st.none() | st.sampled_from(["GPU-0", "GPU-1", "GPU-2"]),
    mig_uuid=st.none() | st.sampled_from(["MIG-a", "MIG-c", "MIG-x"]),
    index=st.none() | st.integers(0, 2),
    gpu_instance=st.none() | st.sampled_from([1, 5]),
)
MEMBERS = st.builds(
    Membership,
    pod_uid=st.none() | st.sampled_from(["u1", "u2"]),
    container_id=st.none() | st.sampled_from(["c1", "c2"]),
    slurm_job=st.none() | st.sampled_from(["1", "2"]),
    slurm_step=st.none() | st.sampled_from(["0", "batch"]),
)
PROCESSES = st.lists(
    st.builds(Process, st.integers(1, 9), st.just("compute"), membership=st.none() | MEMBERS),
    max_size=4,
).map(tuple)
REPORTS = st.lists(
    st.builds(
        WorkloadReport,
        st.lists(st.builds(Allocation, NAMES, PODS), max_size=4).map(tuple),
        st.booleans(),
        st.dictionaries(st.sampled_from(["u1", "c1", "1"]), PODS, max_size=2),
    ),
    max_size=3,
)


def is_named(name: DeviceName, share: OnShare) -> bool:
    """Whether a scheduler's name is that of a share: the first field that it has decides."""
    device = share.device
    mine = [each for each in device.instances if each.gpu_instance == share.gpu_instance]
    if name.mig_uuid is not None:
        return any(each.mig_uuid == name.mig_uuid for each in mine)
    whole = name.uuid == device.uuid if name.uuid is not None else name.index == device.index
    return whole and name.gpu_instance in (None, share.gpu_instance)


@given(REPORTS, PROCESSES, PROCESSES, PROCESSES)
def test_nothing_is_invented_and_nothing_is_said_twice(
    reports: list[WorkloadReport],
    first: tuple[Process, ...],
    second: tuple[Process, ...],
    third: tuple[Process, ...],
) -> None:
    """Whatever schedulers and processes say together."""
    shares = [OnShare(GPU0, None, first), OnShare(MIG, 1, second), OnShare(MIG, 5, third)]
    found = work_of_shares(reports, shares)
    assert set(found) == {Place("GPU-0", None), Place("GPU-1", 1), Place("GPU-1", 5)}
    says = any(report.allocates for report in reports) and all(
        report.allocates or not report.allocations for report in reports
    )
    for share in shares:
        here = found[share.key]
        assert len(set(here.workloads)) == len(here.workloads)
        members = {p.pid for p in share.processes or () if p.membership is not None}
        assert set(here.of_process) <= members
        assert set(here.of_process.values()) <= set(here.workloads)
        is_given = any(
            is_named(allocation.device, share)
            for report in reports
            for allocation in report.allocations
        )
        # No prolog wrote anything of these jobs.
        in_job = any(p.membership.slurm_job for p in share.processes or () if p.membership)
        is_free = False if says and not in_job else None
        assert here.allocated is (True if is_given else is_free)
        assert bool(here.workloads) == (is_given or bool(here.of_process))


def own_groups(count: int) -> tuple[Process, ...]:
    """Processes of which each is in a group of its own, as any user can make them."""
    return tuple(
        Process(pid, "compute", membership=Membership(container_id=f"{pid:064x}"))
        for pid in range(count)
    )


def test_a_share_has_a_bounded_number_of_workloads() -> None:
    """Those that a scheduler gave it to stay, and the others are counted."""
    shares = [OnShare(GPU0, None, (*own_groups(5000), in_pod(6000)))]
    given_away = [
        given_to(replace(TRAIN, container=f"z{number}"), uuid="GPU-0") for number in range(3)
    ]
    named = {UID: replace(TRAIN, container="z1")}
    (work,) = work_of_shares([kubelet(*given_away, **named)], shares).values()

    assert len(work.workloads) == MOST_WORKLOADS
    pods = [each.container for each in work.workloads if each.scheduler == "kubernetes"]
    assert pods == ["z0", "z1", "z2"]
    assert work.left_out == 5003 - MOST_WORKLOADS


def test_the_instances_of_a_gpu_share_its_bound() -> None:
    """Seven do not have seven times as many."""
    instances = tuple(Instance(number, 0, "1g.10gb", f"MIG-{number}") for number in range(7))
    gpu = replace(GPU0, mig=True, instances=instances)
    shares = [OnShare(gpu, number, own_groups(1000)) for number in range(7)]
    works = work_of_shares([], [*shares, OnShare(GPU1, None, own_groups(1000))])

    *seven, whole = works.values()
    assert len(whole.workloads) == MOST_WORKLOADS
    assert 0.9 * MOST_WORKLOADS < sum(len(each.workloads) for each in seven) <= MOST_WORKLOADS
    assert {len(each.workloads) + each.left_out for each in works.values()} == {1000}


def bytecodes(run: Callable[[], object]) -> int:
    """Return how many bytecodes a call executes."""
    count = 0

    def traced(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("scheduler", ["kubernetes", "slurm", "container"])
def test_the_work_grows_with_the_number_of_holders_only(scheduler: str) -> None:
    """Twice as many holders, to each of whom the GPU is given, take about twice the time."""

    def join(count: int) -> None:
        pids = range(count)
        workloads, processes = {
            "kubernetes": (
                [Workload("kubernetes", "team", f"pod-{pid}", "main") for pid in pids],
                [in_pod(pid, f"uid-{pid}") for pid in pids],
            ),
            "slurm": (
                [Workload("slurm", job=str(pid), user="ada") for pid in pids],
                [in_job(pid, str(pid)) for pid in pids],
            ),
            "container": (
                [Workload("container", id=f"{pid:064x}") for pid in pids],
                list(own_groups(count)),
            ),
        }[scheduler]
        known = {f"uid-{pid}": workload for pid, workload in zip(pids, workloads, strict=True)}
        report = kubelet(*(given_to(each, uuid="GPU-0") for each in workloads), **known)
        work_of_shares([report], [OnShare(GPU0, None, tuple(processes))])

    assert bytecodes(lambda: join(400)) < 2.5 * bytecodes(lambda: join(200))


def test_a_pod_that_runs_stays_listed_while_its_kubelet_does_not_know_it() -> None:
    """And which other GPUs are free is not known where it lists no device at all."""
    shares = [on(GPU0, in_pod(7))]
    to_train, to_notebook = given_to(TRAIN, uuid="GPU-0"), given_to(NOTEBOOK, uuid="GPU-1")
    train, notebook = pod_name(TRAIN), pod_name(NOTEBOOK)
    before = replace(
        kubelet(to_train, to_notebook, container=TRAIN),
        pod_labels={train: {"team": "a"}, notebook: {"team": "b"}},
    )
    pods = {UID: frozenset([train]), OTHER_UID: frozenset([notebook])}

    empty = with_running(kubelet(), before, pods, shares)
    assert empty.allocations == (to_train,)
    assert not empty.allocates
    assert empty.named == {"container": TRAIN}
    assert empty.pod_labels == {train: {"team": "a"}}

    other = with_running(kubelet(to_notebook), before, pods, shares)
    assert other.allocations == (to_notebook, to_train)
    assert other.allocates

    nobody = with_running(kubelet(), before, pods, [])
    assert (nobody.allocations, nobody.allocates) == ((), True)
    listed = with_running(kubelet(to_train), before, pods, shares)
    assert (listed.allocations, listed.allocates) == ((to_train,), True)
    silent = with_running(replace(kubelet(to_train), allocates=False), before, pods, shares)
    assert not silent.allocates
