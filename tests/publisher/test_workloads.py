# SPDX-License-Identifier: Apache-2.0
"""Whose work is on a GPU, tick by tick: allocation, the time nobody opens it, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exporter.derive.workloads import work_of_shares
from exporter.model.reading import Process
from exporter.model.snapshot import Share, Snapshot, SourceState
from exporter.model.workload import Allocation, DeviceName, Membership, Workload, WorkloadReport
from tests.derive.readings import known
from tests.publisher.test_tick import BUSY, H100, QUIET
from tests.publisher.test_tick import Bench as Ticked

POD = Workload("kubernetes", "team-a", "train-0", "main")
JOB = Process(7, "compute", 2**30, "python3", "ada", membership=Membership(slurm_job="12"))


class Says:
    """A source of workloads under control of the test."""

    def __init__(self, name: str = "kubernetes", said: WorkloadReport | None = None) -> None:
        self.name = name
        self.said = said
        self.state: SourceState | None = None

    def report(self) -> WorkloadReport | None:
        return self.said

    def give(self, *uuids: str, to: Workload = POD) -> None:
        """Give these GPUs away, and no others."""
        self.said = WorkloadReport(
            tuple(Allocation(DeviceName(uuid=uuid), to) for uuid in uuids), allocates=True
        )
        self.state = SourceState(up=True, age_seconds=0.0)


class Bench(Ticked):
    """A publisher with one source of workloads, ticked by hand."""

    def __init__(self, **rules: Any) -> None:
        self.kubelet = Says()
        super().__init__({"workloads": (self.kubelet,)}, **rules)

    def holds(self, *processes: Process, seconds: float = 1.0, busy: bool = False) -> Snapshot:
        """Advance the clock, let an H100 with these processes answer, and tick."""
        activity = BUSY if busy else QUIET
        return self.tick(H100, seconds=seconds, activity=activity, processes=processes)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def share(snapshot: Snapshot) -> Share:
    return snapshot.gpus[0].shares[0]


def test_a_gpu_that_was_given_away_and_not_opened_adds_up(bench: Bench) -> None:
    """Until a process holds it, and again after that process has ended."""
    bench.kubelet.give("GPU-h100")
    bench.holds()
    for _ in range(3):
        bench.holds()
    process = Process(7, "compute", 2**30)
    bench.holds(process, busy=True)
    opened = share(bench.holds(process, busy=True))
    assert opened.work.workloads == (POD,)
    assert (opened.work.allocated, opened.held) == (True, True)
    assert opened.totals.allocated_unopened_seconds == pytest.approx(3.0)
    closed = share(bench.holds(seconds=2.0))
    assert closed.totals.allocated_unopened_seconds == pytest.approx(5.0)
    bench.kubelet.give()
    free = share(bench.holds())
    assert (free.work.allocated, free.work.workloads) == (False, ())
    assert free.totals.allocated_unopened_seconds == pytest.approx(5.0)


def test_no_time_is_added_over_a_gap(bench: Bench) -> None:
    """Nobody knows what was on it meanwhile."""
    bench.kubelet.give("GPU-h100")
    bench.holds()
    bench.holds()
    shown = share(bench.holds(seconds=60.0))
    assert shown.totals.allocated_unopened_seconds == pytest.approx(1.0)


def test_the_last_word_stays_and_its_age_is_shown(bench: Bench) -> None:
    """While the source fails, its last report and its own state are published."""
    bench.kubelet.give("GPU-h100")
    bench.holds()
    bench.kubelet.state = SourceState(up=False, failures_total=3, age_seconds=70.0)
    snapshot = bench.holds()
    assert snapshot.sources["kubernetes"] == bench.kubelet.state
    assert share(snapshot).work.workloads == (POD,)


@pytest.mark.parametrize("owners", [True, False])
def test_users_of_jobs_are_people(*, owners: bool) -> None:
    """--no-process.owner hides them too; the jobs stay."""
    bench = Bench(owners=owners)
    bench.kubelet.give("GPU-h100", to=Workload("slurm", job="12", user="ada"))
    bench.holds(JOB)
    shown = share(bench.holds(JOB))
    expected = Workload("slurm", job="12", user="ada" if owners else "")
    assert shown.work.workloads == (expected,)
    assert known(shown.holder).workload == expected
    assert owners or "ada" not in repr(shown)


def test_it_is_worked_out_only_when_something_changed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process lists change only every 10 s."""
    calls: list[object] = []

    def counted(*given: Any) -> Any:
        calls.append(given)
        return work_of_shares(*given)

    monkeypatch.setattr("exporter.publisher.workloads.work_of_shares", counted)
    bench.kubelet.give("GPU-h100")
    processes = (Process(7, "compute", 2**30),)
    for _ in range(3):
        bench.tick(H100, activity=QUIET, processes=processes)
    assert len(calls) == 1
    bench.kubelet.give("GPU-h100", to=Workload("kubernetes", "team-b", "other", "main"))
    bench.tick(H100, activity=QUIET)
    assert len(calls) == 2


def test_labels_are_of_pods_whose_work_is_on_a_gpu(bench: Bench) -> None:
    """Not those of every pod of the node."""
    labels = {"team-a/train-0": {"team": "a"}, "kube-system/dns": {"team": "ops"}}
    for given, shown in (("GPU-h100",), {"team-a/train-0": {"team": "a"}}), ((), {}):
        bench.kubelet.give(*given)
        bench.kubelet.said = replace(known(bench.kubelet.said), pod_labels=labels)
        assert bench.holds().pod_labels == shown
