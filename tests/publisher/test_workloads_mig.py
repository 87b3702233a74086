# SPDX-License-Identifier: Apache-2.0
"""Whose work is on a MIG instance: whatever name a scheduler gives it, and as it is made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from exporter.model.reading import ShareReading, SlotReport
from exporter.model.snapshot import SourceState
from exporter.model.workload import (
    Allocation,
    DeviceName,
    Membership,
    Workload,
    WorkloadReport,
)
from tests.divided import COMPUTE_INSTANCES, HEALTHY, MIXED, SEVEN, DividedNode, instance
from tests.publisher.test_workloads import Says

PARENT = "GPU-1a2b3c00-5f3c-4b1e-9d2a-000000000001"
"""As the fake driver calls its first GPU."""
POD = Workload("kubernetes", namespace="team-a", pod="train-0", container="main")
OTHER = Workload("kubernetes", namespace="team-b", pod="notebook-7", container="jupyter")
JOB = Workload("slurm", job="4711", user="ada")
UID = "5d1b2b0e-3f77-4d3a-9a39-0c6a3a0a5b11"
CONTAINER = "0f" * 32


class Scheduler(Says):
    """A source of workloads that reads well from the start."""

    def __init__(self) -> None:
        super().__init__(said=WorkloadReport(allocates=True))
        self.state = SourceState(up=True, age_seconds=0.0)

    def gives(self, *allocations: tuple[DeviceName, Workload], **more: object) -> None:
        given = tuple(Allocation(device, workload) for device, workload in allocations)
        self.said = replace(WorkloadReport(given, allocates=True), **more)  # type: ignore[arg-type]


class WorkingNode(DividedNode):
    """A divided GPU with processes that have control groups."""

    groups: dict[int, Membership]
    """By pid."""

    def reports(self) -> list[SlotReport]:
        return [
            report
            if report.reading is None
            else replace(
                report,
                reading=replace(
                    report.reading, shares=tuple(map(self._grouped, report.reading.shares))
                ),
            )
            for report in super().reports()
        ]

    def _grouped(self, share: ShareReading) -> ShareReading:
        processes = share.processes
        if processes is None:
            return share
        found = tuple(
            replace(process, membership=self.groups.get(process.pid)) for process in processes
        )
        return replace(share, processes=found)

    def work(self) -> dict[str | None, set[str]]:
        """By GPU instance: the names of the pods, or the numbers of the jobs, in the info."""
        found: dict[str | None, set[str]] = {}
        for name, labels, _ in self.series():
            if name == "gpu_workload_info":
                who = labels["workload_pod"] or labels["workload_job"] or labels["workload_id"]
                found.setdefault(labels.get("gpu_instance"), set()).add(who)
        return found


@pytest.fixture(name="scheduler")
def _scheduler() -> Scheduler:
    return Scheduler()


Divided = Callable[..., WorkingNode]


@pytest.fixture(name="node_of")
def _node_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler
) -> Iterator[Divided]:
    nodes: list[WorkingNode] = []

    def make(
        instances: list[dict[str, object]],
        processes: tuple[dict[str, int], ...] = (),
        groups: dict[int, Membership] | None = None,
    ) -> WorkingNode:
        device = {**HEALTHY, "mig": {"instances": instances}, "processes": list(processes)}
        node = WorkingNode(tmp_path, monkeypatch, device, workloads=[scheduler])
        node.groups = groups or {}
        nodes.append(node)
        return node

    monkeypatch.setattr(pynvml, "nvmlLib", pynvml.nvmlLib)
    yield make
    for node in nodes:
        node.close()


@pytest.mark.parametrize(
    "name",
    [
        DeviceName(mig_uuid="MIG-2g.20gb-5-0"),
        DeviceName(uuid=PARENT, gpu_instance=5),
        DeviceName(index=0, gpu_instance=5),
        DeviceName(minor=0, gpu_instance=5),
    ],
    ids=["MIG-uuid", "MIG-GPU-uuid/gi/ci", "index", "minor"],
)
def test_an_instance_by_any_of_its_names(
    node_of: Divided, scheduler: Scheduler, name: DeviceName
) -> None:
    """The workload is on this instance, the others are free."""
    node = node_of(MIXED)
    scheduler.gives((name, POD))
    node.tick(2)

    assert node.work() == {"5": {"train-0"}}
    assert node.instances_of("gpu_allocated") == {"1": 0, "5": 1, "13": 0}


@pytest.mark.parametrize("name", [DeviceName(uuid=PARENT), DeviceName(index=0)])
def test_a_whole_gpu_that_is_divided_is_all_its_instances(
    node_of: Divided, scheduler: Scheduler, name: DeviceName
) -> None:
    """For a job that divides its GPUs by itself."""
    node = node_of(MIXED)
    scheduler.gives((name, JOB))
    node.tick(2)

    assert node.work() == {"1": {"4711"}, "5": {"4711"}, "13": {"4711"}}
    assert set(node.instances_of("gpu_allocated").values()) == {1}


def test_compute_instances_share_their_gpu_instance(node_of: Divided, scheduler: Scheduler) -> None:
    """The workloads of both compute instances are on it."""
    node = node_of(COMPUTE_INSTANCES)
    first, second, _ = (str(each["uuid"]) for each in COMPUTE_INSTANCES)
    scheduler.gives((DeviceName(mig_uuid=first), POD), (DeviceName(mig_uuid=second), OTHER))
    node.tick(2)

    assert node.work() == {"1": {"train-0", "notebook-7"}}


def test_a_process_is_of_its_control_group_on_its_own_instance(
    node_of: Divided, scheduler: Scheduler
) -> None:
    """The scheduler adds the names."""
    processes = (
        {"pid": 11, "bytes": 2**30, "gi": 7, "ci": 0},
        {"pid": 12, "bytes": 2**30, "gi": 9, "ci": 0},
        {"pid": 13, "bytes": 2**30, "gi": 9, "ci": 0},
    )
    groups = {
        11: Membership(pod_uid=UID, container_id=CONTAINER),
        12: Membership(slurm_job="4711", slurm_step="0"),
        13: Membership(container_id=CONTAINER, runtime="docker"),
    }
    node = node_of(SEVEN, processes, groups)
    scheduler.gives((DeviceName(mig_uuid=str(SEVEN[0]["uuid"])), POD), named={UID: POD})
    node.tick(2)
    of_process = {
        share.gpu_instance: {pid: work.scheduler for pid, work in share.work.of_process.items()}
        for share in node.gpu().shares
        if share.work.of_process
    }

    assert node.work() == {"7": {"train-0"}, "9": {"4711", CONTAINER}}
    assert of_process == {7: {11: "kubernetes"}, 9: {12: "slurm", 13: "container"}}


def test_a_workload_follows_its_instance(node_of: Divided, scheduler: Scheduler) -> None:
    """Made anew, an instance has another UUID: the old allocation is of nothing, and the new one
    begins at once, with its own time in which nobody opened it."""
    node = node_of([instance(1, "3g.40gb"), instance(2, "3g.40gb")])
    scheduler.gives(
        (DeviceName(mig_uuid="MIG-3g.40gb-1-0"), POD),
        (DeviceName(mig_uuid="MIG-3g.40gb-2-0"), OTHER),
    )
    node.tick(20)
    before = node.instances_of("gpu_allocated_unopened_seconds_total")
    assert before["1"] == before["2"] == pytest.approx(19, abs=1)

    node.divide([instance(1, "3g.40gb", uuid="MIG-anew"), instance(2, "3g.40gb")])
    node.tick()
    assert node.work() == {"2": {"notebook-7"}}
    assert node.instances_of("gpu_allocated") == {"1": 0, "2": 1}
    scheduler.gives(
        (DeviceName(mig_uuid="MIG-anew"), JOB), (DeviceName(mig_uuid="MIG-3g.40gb-2-0"), OTHER)
    )
    node.tick(5)
    after = node.instances_of("gpu_allocated_unopened_seconds_total")
    assert node.work() == {"1": {"4711"}, "2": {"notebook-7"}}
    assert after["1"] == pytest.approx(5, abs=1)
    assert after["2"] == pytest.approx(before["2"] + 6, abs=1)


def test_mig_on_and_off_moves_the_work(node_of: Divided, scheduler: Scheduler) -> None:
    """By the UUID of the GPU: on the whole, on its instances, on the whole again."""
    node = node_of([])
    scheduler.gives((DeviceName(uuid=PARENT), JOB))
    found = []
    for layout, on in (([], 0), (MIXED, 1), ([], 0)):
        node.divide(layout, on=on)
        node.tick(2)
        found.append(node.work())

    assert found == [
        {None: {"4711"}},
        {"1": {"4711"}, "5": {"4711"}, "13": {"4711"}},
        {None: {"4711"}},
    ]
