# SPDX-License-Identifier: Apache-2.0
"""Whose work is on a MIG instance: whatever name a scheduler gives it, and as it is made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from exporter.model.snapshot import SourceState
from exporter.model.workload import (
    Allocation,
    DeviceName,
    Workload,
    WorkloadReport,
)
from tests.divided import HEALTHY, MIXED, DividedNode, instance
from tests.publisher.test_workloads import Says

PARENT = "GPU-1a2b3c00-5f3c-4b1e-9d2a-000000000001"
"""As the fake driver calls its first GPU."""
POD = Workload("kubernetes", namespace="team-a", pod="train-0", container="main")
OTHER = Workload("kubernetes", namespace="team-b", pod="notebook-7", container="jupyter")
JOB = Workload("slurm", job="4711", user="ada")


class Scheduler(Says):
    """A source of workloads that reads well from the start."""

    def __init__(self) -> None:
        super().__init__(said=WorkloadReport(allocates=True))
        self.state = SourceState(up=True, age_seconds=0.0)

    def gives(self, *allocations: tuple[DeviceName, Workload], **more: object) -> None:
        given = tuple(Allocation(device, workload) for device, workload in allocations)
        self.said = replace(WorkloadReport(given, allocates=True), **more)  # type: ignore[arg-type]


class WorkingNode(DividedNode):
    """A divided GPU that workloads have."""

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


Divided = Callable[[list[dict[str, object]]], WorkingNode]


@pytest.fixture(name="node_of")
def _node_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler
) -> Iterator[Divided]:
    nodes: list[WorkingNode] = []

    def make(instances: list[dict[str, object]]) -> WorkingNode:
        device = {**HEALTHY, "mig": {"instances": instances}}
        node = WorkingNode(tmp_path, monkeypatch, device, workloads=[scheduler])
        nodes.append(node)
        return node

    monkeypatch.setattr(pynvml, "nvmlLib", pynvml.nvmlLib)
    yield make
    for node in nodes:
        node.close()


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
