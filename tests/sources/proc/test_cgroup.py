# SPDX-License-Identifier: Apache-2.0
"""Whose a process is by its control group: paths as runtimes make them, and hostile ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.workload import Membership
from exporter.sources.proc import cgroup
from exporter.sources.proc.cgroup import membership, memberships, of_process
from exporter.sources.proc.procfs import MOST_BYTES
from tests.sources.proc.processes import process

ID = "0123456789abcdef" * 4
OTHER_ID = "fedcba9876543210" * 4
UID = "8f9ba0f5-8b5f-4d6a-a3d1-0a1b2c3d4e5f"
SLICED = UID.replace("-", "_")
STATIC = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
DOCKER = f"0::/system.slice/docker-{ID}.scope\n"


def _paths() -> Iterator[tuple[str, Membership | None]]:
    """The rows of cgroup_paths.tsv: a path, and whose the process is."""
    table = Path(__file__).with_name("cgroup_paths.tsv").read_text()
    names = {"id": ID, "other-id": OTHER_ID, "uid": UID, "uid_": SLICED, "static": STATIC}
    for name, text in names.items():
        table = table.replace(f"<{name}>", text)
    for row in table.splitlines()[1:]:
        _, path, whose = row.split("\t")
        known = dict(each.split("=") for each in whose.split()) if whose != "-" else None
        yield path, None if known is None else Membership(**known)


def test_a_process_is_its_containers(tmp_path: Path) -> None:
    """Each of the processes asked for has an answer, and one that cannot be seen has None."""
    process(tmp_path, 7, cgroup=DOCKER)
    process(tmp_path, 8, cgroup="0::/\n")
    assert memberships(str(tmp_path), [7, 8, 9, 7]) == {
        7: Membership(container_id=ID, runtime="docker"),
        8: None,
        9: None,
    }


def test_a_number_that_is_taken_while_it_is_read_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read may be of the next process with that number."""
    process(tmp_path, 7, cgroup=DOCKER)
    times = iter([100, 200, 100, None, 100, 100])
    monkeypatch.setattr(cgroup, "start_time", lambda root, pid: next(times))
    assert of_process(str(tmp_path), 7) is None
    assert of_process(str(tmp_path), 7) is None
    assert of_process(str(tmp_path), 7) is not None


def test_a_process_whose_start_is_hidden_still_is_somebodys(tmp_path: Path) -> None:
    """As its name and its owner are known then."""
    process(tmp_path, 7, cgroup=DOCKER, started=None)
    assert of_process(str(tmp_path), 7) == Membership(container_id=ID, runtime="docker")


def test_half_a_path_is_not_read(tmp_path: Path) -> None:
    """Job 1 is not whoever's path is cut off after the 1 of 12."""
    path = "0::/slurm/uid_1/job_1"
    filler = "1:name=" + "x" * (MOST_BYTES - len(path) - len("1:name=:/\n")) + ":/\n"
    process(tmp_path, 7, cgroup=filler + path + "2/step_0\n")
    assert of_process(str(tmp_path), 7) is None


def test_the_real_proc_can_be_read() -> None:
    """This process is in some group or in none; one that does not exist is nobody's."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        groups = file.read()
    assert of_process("/proc", os.getpid()) == membership(groups)
    assert of_process("/proc", 2**22 + 1) is None


@pytest.mark.parametrize(("path", "whose"), list(_paths()))
def test_paths_that_schedulers_and_runtimes_make(path: str, whose: Membership | None) -> None:
    """Of version 2, and as one of the hierarchies of version 1."""
    assert membership(f"0::{path}\n") == whose
    assert membership(f"2:cpu,cpuacct:{path}\n1:name=systemd:{path}\n0::/\n") == whose


def test_of_several_hierarchies_the_one_that_says_most_counts() -> None:
    """A manager need not have put the process into all of them, nor know as much in each."""
    bare, docker = f"3:cpu:/mine/{ID}", f"2:devices:/docker/{ID}"
    pod = f"4:memory:/kubepods/pod{UID}/{ID}"
    job = "5:freezer:/slurm/uid_0/job_5/step_0"
    assert membership("\n".join(["1:name=systemd:/", bare, docker, "0::/"])) == Membership(
        None, ID, "docker"
    )
    assert membership("\n".join([docker, pod])) == Membership(UID, ID, None)
    assert membership("\n".join([pod, docker, job])) == Membership(slurm_job="5", slurm_step="0")
    shorter = "6:cpuset:/slurm/uid_0/job_5"
    assert membership(f"{shorter}\n{job}") == Membership(slurm_job="5", slurm_step="0")


WORDS = "/ : - .slice .scope .. 0:: docker libpod cri-containerd kubepods pod slurmstepd.scope"
PART = st.sampled_from([*WORDS.split(), "\n", ID, UID, SLICED, STATIC])


@given(st.one_of(st.text(), st.lists(PART, max_size=12).map("".join)))
def test_any_text_is_somebodys_or_nobodys(text: str) -> None:
    """No content does harm, and what is found has the form of an id."""
    found = membership(text)
    if found is None:
        return
    assert found != Membership()
    if found.container_id is not None:
        assert len(bytes.fromhex(found.container_id)) == 32
        assert found.container_id in text
    if found.pod_uid is not None:
        assert len(bytes.fromhex(found.pod_uid.replace("-", ""))) == 16
    assert found.runtime in (None, "docker", "podman", "containerd", "cri-o")
