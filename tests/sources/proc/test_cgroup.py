# SPDX-License-Identifier: Apache-2.0
"""Whose a process is by its control group: paths as runtimes make them, and hostile ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.model.workload import Membership
from exporter.sources.proc import cgroup
from exporter.sources.proc.cgroup import memberships, of_process
from exporter.sources.proc.procfs import MOST_BYTES

ID = "0123456789abcdef" * 4
OTHER_ID = "fedcba9876543210" * 4
DOCKER = f"0::/system.slice/docker-{ID}.scope\n"


def process(root: Path, pid: int, groups: str | bytes, *, started: int | None = 100) -> None:
    folder = root / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup").write_bytes(groups if isinstance(groups, bytes) else groups.encode())
    if started is not None:
        fields = " ".join(["S", *["0"] * 18, str(started)])
        (folder / "stat").write_text(f"{pid} (python3) {fields}\n")


def test_a_process_is_its_containers(tmp_path: Path) -> None:
    """Each of the processes asked for has an answer, and one that cannot be seen has None."""
    process(tmp_path, 7, DOCKER)
    process(tmp_path, 8, "0::/\n")
    assert memberships(str(tmp_path), [7, 8, 9, 7]) == {
        7: Membership(container_id=ID, runtime="docker"),
        8: None,
        9: None,
    }


def test_a_process_that_moves_is_found_where_it_is_now(tmp_path: Path) -> None:
    """A runtime may move a process after it opened the GPU."""
    process(tmp_path, 7, "0::/user.slice\n")
    assert of_process(str(tmp_path), 7) is None
    process(tmp_path, 7, DOCKER)
    assert of_process(str(tmp_path), 7) == Membership(container_id=ID, runtime="docker")


def test_a_number_that_is_taken_while_it_is_read_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read may be of the next process with that number."""
    process(tmp_path, 7, DOCKER)
    times = iter([100, 200, 100, None, 100, 100])
    monkeypatch.setattr(cgroup, "start_time", lambda root, pid: next(times))
    assert of_process(str(tmp_path), 7) is None
    assert of_process(str(tmp_path), 7) is None
    assert of_process(str(tmp_path), 7) is not None


def test_a_process_whose_start_is_hidden_still_is_somebodys(tmp_path: Path) -> None:
    """As its name and its owner are known then."""
    process(tmp_path, 7, DOCKER, started=None)
    assert of_process(str(tmp_path), 7) == Membership(container_id=ID, runtime="docker")


def test_half_a_path_is_not_read(tmp_path: Path) -> None:
    """Job 1 is not whoever's path is cut off after the 1 of 12."""
    path = "0::/slurm/uid_1/job_1"
    filler = "1:name=" + "x" * (MOST_BYTES - len(path) - len("1:name=:/\n")) + ":/\n"
    process(tmp_path, 7, filler + path + "2/step_0\n")
    assert of_process(str(tmp_path), 7) is None


def test_the_real_proc_can_be_read() -> None:
    """This process is in some group or in none; one that does not exist is nobody's."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        groups = file.read()
    assert of_process("/proc", os.getpid()) == cgroup.membership(groups)
    assert of_process("/proc", 2**22 + 1) is None
