# SPDX-License-Identifier: Apache-2.0
"""Simulated schedulers say of simulated GPUs what real ones would, through the same join."""

from __future__ import annotations

from exporter.model.snapshot import Share
from tests.sources.simulate.played import H100, Played, scenario

NODE = f"""
gpus:
- {{{H100}, story: notebook,
   workload: {{scheduler: kubernetes, namespace: team-a, pod: notebook-7, container: jupyter}}}}
- {H100}
  sequence:
  - {{story: free, for: 10s}}
  - story: free
    for: 1h
    workload: {{scheduler: kubernetes, namespace: team-b, pod: train-1}}
- {{{H100}, story: training, workload: {{scheduler: slurm, job: 4711, user: ada, step: batch}}}}
- {{{H100}, story: training, workload: {{scheduler: container, container: trainer}}}}
- {{{H100}, story: failing, works: 5s, lost: 1h,
   workload: {{scheduler: kubernetes, namespace: team-c, pod: tune-0}}}}
- {{{H100}, story: training, workload: [
   {{scheduler: kubernetes, namespace: team-d, pod: one}},
   {{scheduler: kubernetes, namespace: team-d, pod: two}}]}}
"""


def node(text: str = NODE) -> Played:
    return Played(scenario(text))


def shares(played: Played) -> list[Share | None]:
    return [next(iter(gpu.shares), None) for gpu in played.tick().gpus]


def named(share: Share | None) -> list[tuple[str, ...]]:
    assert share is not None
    return [
        (each.scheduler, each.namespace, each.pod, each.container, each.job, each.user, each.step)
        for each in share.work.workloads
    ]


def test_each_process_is_of_its_workload() -> None:
    """With all that the scenario says of it, and an id; the holder has it too."""
    found = shares(node())
    notebook, free, job, box, tune, shared = found
    assert named(notebook) == [("kubernetes", "team-a", "notebook-7", "jupyter", "", "", "")]
    assert named(free) == []
    assert named(job) == [("slurm", "", "", "", "4711", "ada", "batch")]
    assert named(box) == [("container", "", "", "trainer", "", "", "")]
    assert named(tune) == [("kubernetes", "team-c", "tune-0", "main", "", "", "")]
    assert [each[2] for each in named(shared)] == ["one", "two"]
    for share in (notebook, box, shared):
        assert share is not None
        assert all(each.id for each in share.work.workloads)
        assert share.holder is not None
        assert share.holder.workload == share.work.workloads[0]
    allocated = [None if each is None else each.work.allocated for each in found]
    assert allocated == [True, False, True, False, True, True]


def test_a_gpu_is_given_away_and_not_opened() -> None:
    """For as long as its part of the sequence lasts; how long that was seen is never too long."""
    played = node()
    for _ in range(40):
        found = played.tick().gpus[1].shares[0]
    assert found.held is False
    assert found.work.allocated is True
    assert named(found) == [("kubernetes", "team-b", "train-1", "main", "", "", "")]
    assert found.totals.allocated_unopened_seconds == 31.0
    assert found.totals.unopened_for_seconds == 30.0


def test_what_nobody_opened_is_of_no_step() -> None:
    """A GPU is given to the whole job."""
    work = "workload: {scheduler: slurm, job: 4711, user: ada, step: 3}"
    [share] = shares(node(f"gpus: [{{{H100}, story: free, {work}}}]"))
    assert named(share) == [("slurm", "", "", "", "4711", "ada", "")]


def test_a_report_is_the_same_until_it_changes() -> None:
    """Also while a GPU is lost, which its pod keeps."""
    played = node()
    played.tick()
    (kubernetes, *_) = played.simulation.workloads
    before = kubernetes.report()
    played.tick(7.0)
    assert played.simulation.reports()[4].reading is None
    assert kubernetes.report() is before
    played.tick(10.0)
    assert kubernetes.report() is not before


def test_every_scheduler_of_the_scenario_is_a_source() -> None:
    """Under the name that the real one has: the GPUs are marked as simulated. No other is there."""
    snapshot = node().tick()
    schedulers = {"kubernetes", "slurm", "container"}
    assert set(snapshot.sources) == {"simulate", "gpm", "training", *schedulers}
    assert all(snapshot.sources[name].up for name in schedulers)
    alone = node(f"gpus: [{{{H100}, story: free}}]")
    assert alone.simulation.workloads == ()
    [share] = shares(alone)
    assert share is not None
    assert share.work.allocated is None
