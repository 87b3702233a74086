# SPDX-License-Identifier: Apache-2.0
"""Workload reports are replayed as they were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cli.main import main
from exporter.model.snapshot import Snapshot, SourceState
from exporter.model.workload import (
    Allocation,
    DeviceName,
    Scheduler,
    ShareWork,
    Workload,
    WorkloadReport,
)
from exporter.publisher import Publisher, Rules
from exporter.sources.recording import (
    LineFile,
    Recorder,
    Recording,
    Tick,
    WorkloadRecorder,
    bounds,
    header_of,
)
from exporter.sources.recording.lines import encode
from exporter.sources.recording.recording import Header, header_line, iso_time, read_ticks
from exporter.sources.recording.replay import Replay
from exporter.specs import load_specs
from tests.clocks import ManualClock
from tests.sources.recording.test_recording import values
from tests.sources.simulate.played import Played

SPECS = load_specs()
POD = Workload("kubernetes", "team-a", "notebook-7", "jupyter", id="5d1b2b0e")
JOB = Workload("slurm", job="4711", user="ada")
KUBELET = WorkloadReport(
    (Allocation(DeviceName(uuid="GPU-a"), POD, replica="1"),),
    allocates=True,
    named={"5d1b2b0e": POD},
    pod_labels={f"{'n' * 63}/{'p' * 253}": {f"{'d' * 253}/{'l' * 63}": "v" * 63}},
)
SLURM = WorkloadReport((Allocation(DeviceName(index=0), JOB),), allocates=True, named={"4711": JOB})
UP = SourceState(up=True, age_seconds=0.5)


class Source:
    """A workload source with a report and a state that the test sets."""

    def __init__(self, name: str, report: WorkloadReport | None = None) -> None:
        self.name = name
        self.last = report
        self.state: SourceState | None = UP

    def report(self) -> WorkloadReport | None:
        return self.last


@given(st.lists(values(dict[Scheduler, WorkloadReport] | None), max_size=4))
def test_reports_are_read_back(sequence: Sequence[Any]) -> None:
    """A tick without reports has those of the tick before."""
    lines = [encode(Tick(float(at), workloads=each)) for at, each in enumerate(sequence)]
    last = None
    for each, tick in zip(sequence, read_ticks(lines), strict=True):
        last = last if each is None else each
        assert tick.workloads == last


def test_only_changes_are_written() -> None:
    """Reports only in a tick after a change; states in every tick."""
    kubelet, slurm = Source("kubernetes", KUBELET), Source("slurm")
    slurm.state = None
    recorder = WorkloadRecorder([kubelet, slurm, Source("of tomorrow", SLURM)])
    assert recorder.changed_reports() == {"kubernetes": KUBELET}
    kubelet.last = replace(KUBELET)
    assert recorder.changed_reports() is None
    slurm.last, slurm.state = SLURM, SourceState(up=False, failures_total=2, age_seconds=61.23456)
    assert recorder.changed_reports() == {"kubernetes": KUBELET, "slurm": SLURM}
    assert recorder.states() == {
        "kubernetes": UP,
        "slurm": SourceState(up=False, failures_total=2, age_seconds=61.235),
    }
    kubelet.last = None
    assert recorder.changed_reports() == {"slurm": SLURM}


def unopened(snapshot: Snapshot) -> list[tuple[float | None, float | None]]:
    return [
        (share.totals.allocated_unopened_seconds, share.totals.unopened_for_seconds)
        for gpu in snapshot.gpus
        for share in gpu.shares
    ]


def work_of(snapshot: Snapshot) -> list[ShareWork]:
    return [share.work for gpu in snapshot.gpus for share in gpu.shares]


@pytest.mark.parametrize("scenario", ["demo", "mixed"])
def test_a_replay_has_the_workloads_of_the_recorded_node(scenario: str, tmp_path: Path) -> None:
    """At every tick, also when a GPU is given away and not opened, and as old as it was."""
    path = tmp_path / "r.jsonl.gz"
    node = Played(scenario, 10.0, jobs=False)
    readers, clock = node.simulation, node.clock
    readers.round(0.0)
    workloads = WorkloadRecorder(readers.workloads)
    header = header_of(readers, SPECS, 10.0, clock.time())
    recorder = Recorder(LineFile(path), header, clock, clock.monotonic(), workloads=workloads)
    live = []
    for _ in range(40):
        live.append(node.tick())
        recorder.take(readers)
    recorder.end()
    clock = ManualClock()
    replay = Replay(Recording(path), clock)
    rules = Rules(interval_seconds=10.0)
    publisher = Publisher(replay, SPECS, rules, clock, workloads=replay.workloads)
    for before in live:
        played = publisher.tick()
        clock.advance(10.0)
        assert work_of(played) == work_of(before)
        assert unopened(played) == unopened(before)
        name = "kubernetes" if scenario == "demo" else "slurm"
        assert played.sources[name].up
        assert set(played.sources) & set(get_args(Scheduler)) == {name}
    if scenario == "demo":
        assert unopened(played)[5] == (110.0, 100.0)
    publisher.tick()
    clock.advance(10.0)
    ended = publisher.tick()
    assert not ended.sources[name].up
    age = ended.sources[name].age_seconds
    assert age is not None
    assert age >= 10.0


def test_failures_do_not_fall_when_it_starts_over(tmp_path: Path) -> None:
    """As no counter does."""
    path = tmp_path / "r.jsonl"
    states = [SourceState(up=False, failures_total=each) for each in (1, 3)]
    lines = [
        encode(Tick(float(at), workloads={"slurm": SLURM}, workload_sources={"slurm": each}))
        for at, each in enumerate(states)
    ]
    path.write_bytes(header_line(Header("0", "nvml", 1.0, iso_time(0.0))) + b"".join(lines))
    clock = ManualClock()
    replay = Replay(Recording(path), clock, loop=True)
    (slurm,) = [each for each in replay.workloads if each.name == "slurm"]
    seen = []
    for _ in range(5):
        replay.round(0.0)
        state = slurm.state
        seen.append(None if state is None else state.failures_total)
        clock.advance(1.0)
    assert seen == [1, 3, 4, 6, 7]
    assert slurm.report() == SLURM


def test_a_large_node_is_far_from_every_limit() -> None:
    """250 pods, each with 20 labels and two containers, on 8 divided GPUs."""
    pods = [Workload("kubernetes", "n" * 63, f"{at}-{'p' * 240}", "c" * 63) for at in range(250)]
    named = {f"{at:064}": pod for at, pod in enumerate(pods * 3)}
    labels = {f"{'d' * 60}/{at}": "v" * 63 for at in range(20)}
    report = WorkloadReport(
        tuple(Allocation(DeviceName(mig_uuid="MIG-" + "0" * 36), pod) for pod in pods),
        allocates=True,
        named=named,
        pod_labels={f"{pod.namespace}/{pod.pod}": labels for pod in pods},
    )
    line = encode(Tick(0.0, workloads={"kubernetes": report}))
    assert len(line) < bounds.LONGEST_LINE_BYTES / 2
    assert next(read_ticks([line])).workloads == {"kubernetes": report}


@pytest.mark.usefixtures("restored_logging", "restored_signals")
@pytest.mark.parametrize("flag", ["--process.owner", "--no-process.owner"])
def test_users_are_left_out_of_a_recording(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs stay, without whose they are."""
    path = tmp_path / "r.jsonl"
    words = ["record", str(path), "--demo", "--demo.scenario=mixed", "--duration=1s", flag]
    assert main(words) == 0
    found = next(tick.workloads for tick in Recording(path).ticks())
    assert found is not None
    users = {each.workload.user for each in found["slurm"].allocations}
    users |= {each.user for each in found["slurm"].named.values()}
    assert users == ({"alice", "bob"} if flag == "--process.owner" else {""})
    assert {each.workload.job for each in found["slurm"].allocations} == {"4711", "4713"}
