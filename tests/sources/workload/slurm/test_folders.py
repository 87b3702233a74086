# SPDX-License-Identifier: Apache-2.0
"""What the files of a prolog say, and that no file can do harm."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from exporter.model.workload import DeviceName
from exporter.sources.poller import Unreadable
from exporter.sources.workload.slurm import folders
from exporter.sources.workload.slurm.folders import (
    Folder,
    certain_first,
    read_folder,
)

GPU = "GPU-8f9ba0f5-8b5f-4d6a-a3d1-0a1b2c3d4e5f"
MIG = "MIG-265a219d-a49f-578a-825d-222c72699c16"


def written(path: Path, **files: str) -> str:
    """A folder with these files; a name's _ is a dot, and n before a digit is left out."""
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name.removeprefix("n").replace("_", ".")).write_text(text)
    return str(path)


def said(folder: Folder | None) -> list[tuple[DeviceName, str, str]]:
    """What a folder without problems says."""
    assert folder is not None
    assert folder.problems == ()
    return [(entry.device, entry.job, entry.user) for entry in folder.entries]


def test_a_mapping_folder(tmp_path: Path) -> None:
    """A file for each GPU or GPU instance, a job on each line, an empty file for a free GPU."""
    path = written(tmp_path, n0="7\n", n1="7\n8\n7\n\n", n2="", n3="  \n", n4_2="9")
    assert said(read_folder(path)) == [
        (DeviceName(index=0), "7", ""),
        (DeviceName(index=1), "7", ""),
        (DeviceName(index=1), "8", ""),
        (DeviceName(index=4, gpu_instance=2), "9", ""),
    ]


def test_numbers_are_those_of_device_files_if_so_configured(tmp_path: Path) -> None:
    """--slurm.numbering=minor."""
    path = written(tmp_path, n0="7\n", n4_2="9")
    assert said(read_folder(path, "minor")) == [
        (DeviceName(minor=0), "7", ""),
        (DeviceName(minor=4, gpu_instance=2), "9", ""),
    ]


@pytest.mark.parametrize("text", ["0\n", "0", "0 0\n", "0\n\n"])
def test_job_0_is_nobody(text: str, tmp_path: Path) -> None:
    """Some prologs write it where a GPU is free, and keep a file for each."""
    assert said(read_folder(written(tmp_path, n0=text, n1="7\n"))) == [
        (DeviceName(index=1), "7", "")
    ]


def test_a_gpustat_folder(tmp_path: Path) -> None:
    """Named by UUID; the user is a name, or a UID as jobstats writes it."""
    (tmp_path / GPU).write_text("7 alice\n8 bob@example.org\n")
    (tmp_path / MIG).write_text("45916256 0\n")
    (tmp_path / "GPU-1").write_text("9 4000000000\n10\n11 a;b\n")
    assert said(read_folder(str(tmp_path))) == [
        (DeviceName(uuid="GPU-1"), "9", "4000000000"),
        (DeviceName(uuid="GPU-1"), "10", ""),
        (DeviceName(uuid="GPU-1"), "11", ""),
        (DeviceName(uuid=GPU), "7", "alice"),
        (DeviceName(uuid=GPU), "8", "bob@example.org"),
        (DeviceName(mig_uuid=MIG), "45916256", pwd.getpwuid(0).pw_name),
    ]


def test_a_number_yields_to_a_uuid(tmp_path: Path) -> None:
    """jobstats writes both for a job, and only the number where its site left the UUID out."""
    gpustat = tmp_path / "gpustat"
    written(gpustat, n0="7 0\n", n1="8 0\n")
    (gpustat / GPU).write_text("7 0\n")
    job_map = written(tmp_path / "map", n5="7\n", n6="9\n")
    both = [read_folder(str(gpustat)), read_folder(job_map)]
    found = certain_first([folder for folder in both if folder is not None])
    assert [(entry.job, entry.device) for entry in found] == [
        ("8", DeviceName(index=1)),
        ("7", DeviceName(uuid=GPU)),
        ("9", DeviceName(index=6)),
    ]


@pytest.mark.parametrize(
    "name",
    ["README", "0.tmp", "00000", "-1", ".0", "1.2.3", "GPU", "GPU-", "MIG-a b", f".{GPU}", "٣"],
)
def test_other_names_are_left_alone(name: str, tmp_path: Path) -> None:
    """Notes, locks, and what a script is about to rename are no fault."""
    (tmp_path / name).write_text("no job")
    assert said(read_folder(str(tmp_path))) == []


@pytest.mark.parametrize(
    "text",
    ["job 7\n", "7,8\n", "00\n", "-7\n", "7_1\n", "12345678901\n", "\0\n", "٣\n"],
)
def test_a_line_without_a_job_leaves_the_rest(text: str, tmp_path: Path) -> None:
    """One line says which file; whether its GPU is free is then not known."""
    found = read_folder(written(tmp_path, n0=f"{text}9\n{text}", n1="8"))
    assert found is not None
    assert [entry.job for entry in found.entries] == ["9", "8"]
    assert found.problems == (f"{tmp_path}/0: a line does not begin with the number of a job",)
    assert found.in_doubt == (DeviceName(index=0),)


def test_a_folder_that_cannot_be_listed(tmp_path: Path) -> None:
    """Is not an empty one."""
    (tmp_path / "file").write_text("")
    with pytest.raises(Unreadable, match="file: Not a directory"):
        read_folder(f"{tmp_path}/file")
    with pytest.raises(Unreadable):
        read_folder("a\0b")


def test_files_that_are_none(tmp_path: Path) -> None:
    """A FIFO is not waited for; a folder, a socket's place or a dead link has no word."""
    os.mkfifo(tmp_path / "0")
    (tmp_path / "1").mkdir()
    (tmp_path / "2").symlink_to("/dev/zero")
    (tmp_path / "3").symlink_to(tmp_path / "gone")
    (tmp_path / "4").write_text("7")
    found = read_folder(str(tmp_path))
    assert found is not None
    assert [entry.job for entry in found.entries] == ["7"]
    assert found.problems == (
        f"{tmp_path}/0: a FIFO, not a regular file",
        f"{tmp_path}/1: Is a directory",
        f"{tmp_path}/2: a device, not a regular file",
    )
    assert found.in_doubt == tuple(DeviceName(index=index) for index in range(3))


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, and the files of a folder."""
    found = read_folder(written(tmp_path, n0="7\n" * 40_000, n1="8\n"))
    assert found is not None
    assert [entry.job for entry in found.entries] == ["8"]
    assert found.problems == (f"{tmp_path}/0: has more than 65536 bytes",)
    monkeypatch.setattr(folders, "MOST_FILES", 1)
    with pytest.raises(Unreadable, match="has more than 1 files"):
        read_folder(str(tmp_path))
