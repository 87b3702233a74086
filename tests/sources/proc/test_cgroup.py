# SPDX-License-Identifier: Apache-2.0
"""Whose a process is by its control group: paths as runtimes make them, and hostile ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.workload import Membership
from exporter.sources.proc import cgroup
from exporter.sources.proc.cgroup import membership, memberships, of_process
from exporter.sources.proc.procfs import MOST_BYTES

OWN = "/user.slice/user-1000.slice/user@1000.service"
ID = "0123456789abcdef" * 4
OTHER_ID = "fedcba9876543210" * 4
UID = "8f9ba0f5-8b5f-4d6a-a3d1-0a1b2c3d4e5f"
SLICED = UID.replace("-", "_")
STATIC = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
DOCKER = f"0::/system.slice/docker-{ID}.scope\n"


PATHS: dict[str, tuple[str, Membership | None]] = {
    "docker, systemd": (f"/system.slice/docker-{ID}.scope", Membership(None, ID, "docker")),
    "docker, cgroupfs": (f"/docker/{ID}", Membership(None, ID, "docker")),
    "docker, rootless": (
        f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope",
        Membership(None, ID, "docker"),
    ),
    "docker, with groups of its own": (f"/docker/{ID}/init.scope", Membership(None, ID, "docker")),
    "docker, under another parent": (f"/mine/{ID}", Membership(None, ID, None)),
    "docker, of ECS": (f"/ecs/a/{STATIC}/{ID}", Membership(None, ID, None)),
    "docker in docker": (f"/docker/{ID}/docker/{OTHER_ID}", Membership(None, ID, "docker")),
    "docker, building": ("/docker/buildkit/k3l1b0psdnmc8yy5p9gyx9xde", None),
    "podman, systemd": (f"/machine.slice/libpod-{ID}.scope", Membership(None, ID, "podman")),
    "podman, cgroup v2": (
        f"/machine.slice/libpod-{ID}.scope/container",
        Membership(None, ID, "podman"),
    ),
    "podman, rootless": (
        f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
        Membership(None, ID, "podman"),
    ),
    "podman, cgroupfs": (f"/libpod_parent/libpod-{ID}", Membership(None, ID, "podman")),
    "podman, of a unit": (
        f"/system.slice/llm.service/libpod-payload-{ID}",
        Membership(None, ID, "podman"),
    ),
    "podman, in a pod": (
        f"/machine.slice/machine-libpod_pod_{OTHER_ID}.slice/libpod-{ID}.scope",
        Membership(None, ID, "podman"),
    ),
    "podman, in a pod, cgroupfs": (
        f"/libpod_parent/{OTHER_ID}/libpod-{ID}",
        Membership(None, ID, "podman"),
    ),
    "podman's monitor": (f"/machine.slice/libpod-conmon-{ID}.scope", None),
    "nerdctl, systemd": (f"/system.slice/nerdctl-{ID}.scope", Membership(None, ID, "containerd")),
    "nerdctl, cgroupfs": (f"/default/{ID}", Membership(None, ID, None)),
    "pod, containerd": (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICED}.slice"
        f"/cri-containerd-{ID}.scope",
        Membership(UID, ID, "containerd"),
    ),
    "pod, containerd, two drivers": (
        f"/system.slice/containerd.service/kubepods-besteffort-pod{SLICED}.slice"
        f":cri-containerd:{ID}",
        Membership(UID, ID, "containerd"),
    ),
    "pod, containerd, two drivers, guaranteed": (
        f"/kubepods-pod{SLICED}.slice:cri-containerd:{ID}",
        Membership(UID, ID, "containerd"),
    ),
    "pod, cgroupfs": (f"/kubepods/besteffort/pod{UID}/{ID}", Membership(UID, ID, None)),
    "pod, guaranteed": (f"/kubepods/pod{UID}/{ID}", Membership(UID, ID, None)),
    "pod, CRI-O": (
        f"/kubepods.slice/kubepods-pod{SLICED}.slice/crio-{ID}.scope",
        Membership(UID, ID, "cri-o"),
    ),
    "pod, CRI-O, crun": (
        f"/kubepods.slice/kubepods-pod{SLICED}.slice/crio-{ID}.scope/container",
        Membership(UID, ID, "cri-o"),
    ),
    "pod, CRI-O, cgroupfs": (f"/kubepods/pod{UID}/crio-{ID}", Membership(UID, ID, "cri-o")),
    "pod, CRI-O's monitor": (
        f"/kubepods.slice/kubepods-pod{SLICED}.slice/crio-conmon-{ID}.scope",
        Membership(UID, None, None),
    ),
    "pod, cri-dockerd": (
        f"/kubepods.slice/kubepods-pod{SLICED}.slice/docker-{ID}.scope",
        Membership(UID, ID, "docker"),
    ),
    "pod, static": (f"/kubepods/burstable/pod{STATIC}/{ID}", Membership(STATIC, ID, None)),
    "pod, static, systemd": (
        f"/kubepods.slice/kubepods-burstable-pod{STATIC}.slice/cri-containerd-{ID}.scope",
        Membership(STATIC, ID, "containerd"),
    ),
    "pod in a container (kind)": (
        f"/docker/{OTHER_ID}/kubelet.slice/kubelet-kubepods.slice"
        f"/kubelet-kubepods-besteffort-pod{SLICED}.slice/cri-containerd-{ID}.scope",
        Membership(UID, ID, "containerd"),
    ),
    "docker in a pod": (
        f"/kubepods/burstable/pod{UID}/{ID}/docker/{OTHER_ID}",
        Membership(UID, ID, None),
    ),
    "pod in a pod": (
        f"/kubepods/pod{UID}/{ID}/kubepods/pod{STATIC}/{OTHER_ID}",
        Membership(UID, ID, None),
    ),
    "seen from another pod": (
        f"/../../kubepods-pod{SLICED}.slice/cri-containerd-{ID}.scope",
        Membership(UID, ID, "containerd"),
    ),
    "seen from another pod, cgroupfs": (f"/../../pod{UID}/{ID}", Membership(UID, ID, None)),
    "seen from another container": (f"/../docker-{ID}.scope", Membership(None, ID, "docker")),
    "seen from another, cgroupfs": (f"/../{ID}", Membership(None, ID, None)),
    "ended": (f"/system.slice/docker-{ID}.scope (deleted)", Membership(None, ID, "docker")),
    "job in a container": (
        f"/docker/{ID}/system.slice/slurmstepd.scope/job_5/step_0/user/task_0",
        Membership(slurm_job="5", slurm_step="0"),
    ),
    "nobody": ("/", None),
    "a job's name in one's own slice": (
        f"{OWN}/slurmstepd.scope/job_5/step_0",
        None,
    ),
    "a job's name by Slurm's number": (
        f"{OWN}/slurmstepd.scope/s0GQW60VT3M300/step_0",
        None,
    ),
    "a job's name in one's session": ("/user.slice/user-7.slice/slurm/uid_7/job_5/step_0", None),
    "a pod's name in one's own slice": (
        f"{OWN}/kubepods/pod{UID}",
        None,
    ),
    "a container in such a pod": (
        f"{OWN}/kubepods/pod{UID}/{ID}",
        Membership(None, ID, None),
    ),
    "systemd in a pod": (
        f"/kubepods/burstable/pod{UID}/{ID}/user.slice/user-1000.slice/session-1.scope",
        Membership(UID, ID, None),
    ),
    "a job's name in a pod of systemd": (
        f"/kubepods/pod{UID}/{ID}/user.slice/user-0.slice/slurm/uid_7/job_5/step_0",
        Membership(UID, ID, None),
    ),
    "a session within a job": (
        "/slurm/uid_7/job_5/step_0/user.slice/user-7.slice/slurm/uid_0/job_6/step_1",
        Membership(slurm_job="5", slurm_step="0"),
    ),
    "a container without root in a session": (
        f"/user.slice/user-7.slice/session-3.scope/libpod-{ID}",
        Membership(None, ID, "podman"),
    ),
    "one's own group": ("/user.slice/user-1000.slice/session-3.scope", None),
    "out of sight": ("/../..", None),
    "id too short": (f"/docker/{ID[1:]}", None),
    "id too long": (f"/docker/{ID}0", None),
    "id in capitals": (f"/docker/{ID.upper()}", None),
    "an id with something behind": (f"/docker-{ID}.service", None),
    "an id with something before": (f"/mydocker-{ID}.scope", None),
}


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
    assert of_process("/proc", os.getpid()) == membership(groups)
    assert of_process("/proc", 2**22 + 1) is None


@pytest.mark.parametrize(("path", "whose"), PATHS.values(), ids=PATHS)
def test_paths_that_runtimes_make(path: str, whose: Membership | None) -> None:
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


@given(
    above=st.lists(st.sampled_from(["system.slice", "a b", "..", "x.service", "é"]), max_size=4),
    below=st.lists(st.sampled_from(["container", "init.scope", "x", "a b"]), max_size=3),
    word=st.sampled_from(["docker-{}.scope", "docker/{}", "libpod-{}.scope", "{}"]),
    hexadecimal=st.binary(min_size=32, max_size=32).map(bytes.hex),
)
def test_a_container_is_found_wherever_it_lies(
    above: list[str], below: list[str], word: str, hexadecimal: str
) -> None:
    """Whatever groups are above it, and whatever it has made for itself."""
    path = "/".join(["", *above, word.format(hexadecimal), *below])
    found = membership(f"0::{path}\n")
    assert found is not None
    assert found.container_id == hexadecimal
