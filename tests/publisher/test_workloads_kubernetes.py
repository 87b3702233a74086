# SPDX-License-Identifier: Apache-2.0
"""Whose work is on every share, from tick to tick."""

from __future__ import annotations

from dataclasses import dataclass, replace

from exporter.model.reading import Board, Device, Process, Reading, ShareReading, SlotReport, Vitals
from exporter.model.snapshot import SourceState
from exporter.model.workload import Allocation, DeviceName, ShareWork, Workload, WorkloadReport
from exporter.publisher.workloads import NodeWork

POD = Workload("kubernetes", "team-a", "one", "main")
JOB = Workload("slurm", job="4711", user="ada")


@dataclass
class Said:
    """A source that says what a test wants."""

    now: WorkloadReport | None
    name: str = "kubernetes"
    state: SourceState | None = None

    def report(self) -> WorkloadReport | None:
        return self.now


def _round(*processes: tuple[Process, ...]) -> list[SlotReport]:
    """A round of one GPU for each list of processes."""
    return [
        SlotReport(
            index,
            device := Device(index, f"GPU-{index}", "H100"),
            Reading(device, 1.0, 1.0, Vitals(), Board(), (ShareReading(processes=listed),)),
            None,
            {},
        )
        for index, listed in enumerate(processes)
    ]


def _given(*to: Workload) -> tuple[Allocation, ...]:
    return tuple(Allocation(DeviceName(index=index), each) for index, each in enumerate(to))


def test_the_last_word_of_each_source_is_joined() -> None:
    """Nothing is known of a share that is not read."""
    work = NodeWork(
        [
            Said(WorkloadReport(_given(POD), allocates=True)),
            Said(WorkloadReport(_given(JOB), allocates=True), "slurm"),
            Said(None, "container"),
        ]
    )
    work.take(_round((), ()), owners=True)

    assert work.of("GPU-0", None) == ShareWork((POD, JOB), True)
    assert work.of("GPU-1", None) == ShareWork((), False)
    assert work.of("GPU-9", None) == ShareWork()


def test_a_new_word_counts_at_once() -> None:
    source = Said(WorkloadReport(_given(POD), allocates=True))
    work = NodeWork([source])
    reports = _round(())
    work.take(reports, owners=True)
    source.now = WorkloadReport(allocates=True)
    work.take(reports, owners=True)

    assert work.of("GPU-0", None) == ShareWork((), False)


def test_without_owners_no_user_is_named() -> None:
    """Two jobs that differ by their users alone are one."""
    both = (*_given(JOB), *_given(replace(JOB, user="bob")))
    work = NodeWork([Said(WorkloadReport(both))])
    work.take(_round(()), owners=False)

    assert work.of("GPU-0", None).workloads == (replace(JOB, user=""),)


def test_labels_are_of_pods_whose_work_is_on_a_gpu() -> None:
    """Not those of every pod of the node."""
    labels = {"team-a/one": {"team": "a"}, "kube-system/dns": {"team": "ops"}}
    source = Said(WorkloadReport(_given(POD), allocates=True, pod_labels=labels))
    work = NodeWork([source])
    work.take(_round(()), owners=True)
    assert work.pod_labels == {"team-a/one": {"team": "a"}}

    source.now = WorkloadReport(allocates=True, pod_labels=labels)
    work.take(_round(()), owners=True)

    assert work.pod_labels == {}
