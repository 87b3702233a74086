# SPDX-License-Identifier: Apache-2.0
"""Which jobs have control groups on a node, in every layout, and which job a SLUID is."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.sources.workload.slurm import cgroups
from exporter.sources.workload.slurm.cgroups import Sluids, SlurmGroups, find
from tests.sources.workload.slurm.trees import SCOPE, SLUID, Node

OTHER = "s01ARZ3NDEKTSW"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def found(node: Node) -> SlurmGroups:
    """The groups of Slurm's jobs, of which there are some."""
    groups = find(str(node.sysfs))
    assert groups is not None
    return groups


@pytest.mark.parametrize(
    "scope",
    [
        SCOPE,
        "system.slice/gpu-1_slurmstepd.scope",
        "hpc.slice/hpc-slurm.slice/slurmstepd.scope",
        "unified/slurmstepd.scope",
        f"kubepods.slice/kubepods-podx.slice/cri-containerd-{'a' * 64}.scope/{SCOPE}",
    ],
)
def test_version_2(node: Node, scope: str) -> None:
    """Jobs by number; `system` is none."""
    node.group(f"{scope}/job_7/step_extern/user/task_special")
    node.group(f"{scope}/job_8/step_0/user/task_0")
    node.group(f"{scope}/system/job_9")
    jobs = found(node).jobs
    assert {job: (group.uid, group.contained) for job, group in jobs.items()} == {
        "7": (None, True),
        "8": (None, False),
    }


@pytest.mark.parametrize("tree", ["freezer/slurm", "cpu,cpuacct/slurm_gpu-1", "memory/x/slurm"])
def test_version_1(node: Node, tree: str) -> None:
    """With the user of each job."""
    node.group(f"{tree}/uid_1000/job_7/step_0")
    node.group(f"{tree}/uid_0/job_8/step_extern")
    node.group(f"{tree}/system")
    jobs = found(node).jobs
    assert {job: (group.uid, group.contained) for job, group in jobs.items()} == {
        "7": (1000, False),
        "8": (0, True),
    }


def test_hierarchies_complete_each_other(node: Node) -> None:
    """Not every one has all that Slurm made."""
    for name in ("cpuset/slurm", "freezer/slurm", "memory/slurm"):
        node.group(f"{name}/uid_5/job_7")
    node.group("freezer/slurm/uid_5/job_7/step_extern")
    assert found(node).jobs["7"].contained


def test_what_is_looked_at_is_bounded(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may have been missed is noted."""
    node.group(f"{SCOPE}/job_7")
    node.group(f"{SCOPE}/job_8")
    assert found(node).complete
    with monkeypatch.context() as patched:
        patched.setattr(cgroups, "MOST_JOBS", 1)
        assert (len(found(node).jobs), found(node).complete) == (1, False)
    for number in range(20):
        node.group(f"other-{number}/deeper")
    assert found(node).complete
    monkeypatch.setattr(cgroups, "MOST_FOLDERS", 30)
    assert (len(found(node).jobs), found(node).complete) == (2, False)


def jobs_of(node: Node, sluids: Sluids) -> dict[str, str]:
    """The jobs of the SLUIDs that the node has."""
    return sluids.of(found(node).sluids)


def test_a_sluid_by_the_title_of_its_slurmstepd(node: Node) -> None:
    """Once known it is not asked for again, and forgotten with its job."""
    sluids = Sluids(str(node.procfs))
    step = f"{SCOPE}/{SLUID}/step_0"
    node.group(f"{step}/slurm", [node.process(50, "slurmstepd: [1234.0]")])
    assert jobs_of(node, sluids) == {SLUID: "1234"}
    node.process(50, "bash")
    assert jobs_of(node, sluids) == {SLUID: "1234"}
    assert sluids.of({}) == {}
    assert jobs_of(node, sluids) == {}


@pytest.mark.parametrize(
    "title",
    ["slurmstepd: [1234.extern]", "slurmstepd: [1234.batch]||", "slurmstepd: [1234.0+1]| | "],
)
def test_titles(node: Node, title: str) -> None:
    """Of any step, with what is left of the command line behind it."""
    node.group(f"{SCOPE}/{SLUID}/step_x/slurm", [node.process(50, title)])
    assert jobs_of(node, Sluids(str(node.procfs))) == {SLUID: "1234"}


def test_a_title_that_is_none(node: Node) -> None:
    """A user's process may call itself anything: it is in another group, and is not asked."""
    node.group(f"{SCOPE}/{SLUID}/step_0/user/task_0", [node.process(51, "slurmstepd: [66.0]")])
    node.group(f"{SCOPE}/{SLUID}/step_0/slurm", [node.process(50, "sleep|slurmstepd: [66.0]")])
    assert jobs_of(node, Sluids(str(node.procfs))) == {}


def test_sluids_beside_numbers(node: Node) -> None:
    """CgroupJobIdPaths may have been changed while jobs ran."""
    node.group(f"{SCOPE}/job_7")
    node.group(f"{SCOPE}/{OTHER}")
    groups = found(node)
    assert (set(groups.jobs), set(groups.sluids)) == ({"7"}, {OTHER})
