# SPDX-License-Identifier: Apache-2.0
"""The prolog and epilog of deploy/slurm, run as slurmd runs them, with its answers scripted."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exporter.sources.workload.slurm.folders import read_folder
from tests.programs import ended, write_script

SCRIPTS = Path(__file__).parents[2] / "deploy/slurm"
UUIDS = tuple(f"GPU-0000000{number}-2e97-d125-629d-fd4e5734553f" for number in range(4))
MIG = "MIG-265a219d-a49f-578a-825d-222c72699c16"
MINORS = (2, 3, 0, 1)
"""Of the GPUs in the order of the bus: as on a node that jobstats' page shows."""
ONE_EACH = "\n".join(
    f"slurmd: Gres Name=gpu Type=(null) Count=1 Index={number} ID=7696487 File=/dev/nvidia{number}"
    " (null)"
    for number in (3, 2, 1, 0)
)
"""What Slurm 22.05 lists where gres.conf has the device files the other way round."""


class Slurmd:
    """What a slurmd runs its scripts with, on a node of four GPUs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.gpustat = root / "gpustat"
        self.job_map = root / "job-mapping"
        self.programs = root / "bin"
        self.programs.mkdir()
        self.lists(ONE_EACH)
        for index, minor in enumerate(MINORS):
            self.gpu(index, minor, UUIDS[index])

    def gpu(self, index: int, minor: int, uuid: str) -> None:
        """Let the driver have a GPU."""
        folder = self.root / f"nvidia/gpus/0000:{index}7:00.0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA H100\nIRQ:   \t\t 5{index}\nGPU UUID: \t {uuid}\n"
            f"Bus Type: \t PCIe\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n"
        )

    def program(self, name: str, text: str) -> None:
        """Put a program on the PATH, before all others."""
        write_script(self.programs / name, text)

    def lists(self, text: str) -> None:
        """Let `slurmd -G` list this, on standard error as it does."""
        (self.root / "gres").write_text(text)
        self.program("slurmd", f"cat {self.root}/gres >&2")

    def run(self, script: str, job: int, **variables: str) -> str:
        """Run a script for a job, which must not fail; return what it said."""
        done = ended(
            SCRIPTS / f"{script}.sh",
            env={
                "PATH": f"{self.programs}:{os.environ['PATH']}",
                "SLURM_JOB_ID": str(job),
                "SLURM_JOB_USER": "alice",
                "SLURM_JOB_UID": "1000",
                "SLURMD_NODENAME": "gpu-1",
                "ROOFLINE_GPUSTAT": str(self.gpustat),
                "ROOFLINE_NVIDIA_PROC": str(self.root / "nvidia"),
                **variables,
            },
        )
        assert done.returncode == 0
        assert done.stdout == ""
        return done.stderr

    def starts(self, job: int, gpus: str, **variables: str) -> str:
        """Run the prolog of a job with Slurm's numbers of its GPUs."""
        return self.run("prolog", job, SLURM_JOB_GPUS=gpus, CUDA_VISIBLE_DEVICES=gpus, **variables)

    def files(self, folder: Path | None = None) -> dict[str, str]:
        """What there is, by name, without the lock."""
        return {
            file.name: file.read_text()
            for file in (folder or self.gpustat).iterdir()
            if file.name != ".lock"
        }


@pytest.fixture
def slurmd(tmp_path: Path) -> Slurmd:
    return Slurmd(tmp_path)


def test_slurms_number_is_looked_up(slurmd: Slurmd) -> None:
    """Position 0 is /dev/nvidia3, which is the GPU that the driver numbers 1."""
    assert slurmd.starts(7, "0,2") == ""
    assert slurmd.files() == {UUIDS[1]: "7 alice\n", UUIDS[3]: "7 alice\n"}
    assert os.stat(slurmd.gpustat / UUIDS[1]).st_mode & 0o777 == 0o644
    found = read_folder(str(slurmd.gpustat))
    assert found is not None
    assert found.problems == ()
    assert [(each.device.uuid, each.job, each.user) for each in found.entries] == [
        (UUIDS[1], "7", "alice"),
        (UUIDS[3], "7", "alice"),
    ]


@pytest.mark.parametrize(
    ("listing", "order"),
    [
        ("Gres Name=gpu Type=h100 Count=4 Index=0 ID=7 File=/dev/nvidia[0-3] (null)", "2301"),
        ("Gres Name=gpu Type=(null) Count=4 ID=7 File=/dev/nvidia[2-3,0-1] (null)", "0123"),
        (
            "slurmd: debug: x\nslurmd: Gres Name=nic Count=2 File=/dev/nic[0-1] (null)\n"
            "slurmd: Gres Name=gpu Type=a Count=3 ID=7 File=/dev/nvidia[0,3],/dev/nvidia2 Cores=0-3"
            " CoreCnt=8 Links=-1,0 Flags=HAS_FILE\n"
            "slurmd: Gres Name=gpu Type=b Count=1 ID=7 File=/dev/nvidia1 (null)",
            "2103",
        ),
    ],
)
def test_rows_of_several_device_files(listing: str, order: str, slurmd: Slurmd) -> None:
    """As Slurm writes lists of files."""
    slurmd.lists(listing)
    for position, index in enumerate(order):
        slurmd.starts(10 + position, str(position))
        assert slurmd.files()[UUIDS[int(index)]] == f"{10 + position} alice\n"


def test_mig_instances(slurmd: Slurmd) -> None:
    """By the UUID in the variable, or in the row of `slurmd -G`."""
    slurmd.run("prolog", 7, SLURM_JOB_GPUS="5", CUDA_VISIBLE_DEVICES=MIG)
    assert slurmd.files() == {MIG: "7 alice\n"}
    slurmd.lists(
        "slurmd: Gres Name=gpu Type=1g.10gb Count=1 Index=0 ID=7 File=/dev/nvidia0,"
        "/dev/nvidia-caps/nvidia-cap21,/dev/nvidia-caps/nvidia-cap22 Links=(null) "
        f"Flags=HAS_FILE UniqueId={MIG}"
    )
    slurmd.starts(8, "0")
    assert slurmd.files() == {MIG: "8 alice\n"}


def test_who_has_a_gpu_alone_replaces_what_was_left(slurmd: Slurmd) -> None:
    """An epilog that failed does no harm to the next job."""
    slurmd.starts(7, "0")
    slurmd.starts(8, "0")
    assert slurmd.files() == {UUIDS[1]: "8 alice\n"}


def test_who_shares_a_gpu_is_added(slurmd: Slurmd) -> None:
    """Where gres.conf has shards or MPS; a prolog that runs again adds nothing."""
    slurmd.lists(f"{ONE_EACH}\nslurmd: Gres Name=shard Count=2 File=/dev/nvidia3 (null)")
    for job in (7, 8, 8):
        slurmd.starts(job, "0")
    assert slurmd.files() == {UUIDS[1]: "7 alice\n8 alice\n"}
    slurmd.run("epilog", 7)
    assert slurmd.files() == {UUIDS[1]: "8 alice\n"}


def test_the_epilog_takes_only_what_is_its_jobs(slurmd: Slurmd) -> None:
    """Whatever GPUs it was given; other jobs' numbers may begin alike."""
    slurmd.starts(7, "0,1")
    slurmd.starts(71, "2")
    slurmd.run("epilog", 7)
    assert slurmd.files() == {UUIDS[3]: "71 alice\n"}
    slurmd.run("epilog", 7)
    slurmd.run("epilog", 71)
    assert slurmd.files() == {}


def test_the_files_of_dcgm_exporter(slurmd: Slurmd) -> None:
    """Named by index, if its folder is set."""
    both = {"ROOFLINE_JOB_MAP": str(slurmd.job_map)}
    slurmd.starts(7, "0", **both)
    assert slurmd.files(slurmd.job_map) == {"1": "7\n"}
    found = read_folder(str(slurmd.job_map))
    assert found is not None
    assert [(each.device.index, each.job) for each in found.entries] == [(1, "7")]
    slurmd.run("epilog", 7, **both)
    assert (slurmd.files(), slurmd.files(slurmd.job_map)) == ({}, {})


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_JOB_GPUS": "9"},
        {"SLURM_JOB_GPUS": "a"},
        {"SLURM_JOB_GPUS": "../x,$(touch x)"},
        {"SLURM_JOB_GPUS": "NoDevFiles"},
        {"SLURM_JOB_ID": "x y", "SLURM_JOB_GPUS": "0"},
        {"SLURM_JOB_ID": "", "SLURM_JOB_GPUS": "0"},
        {},
    ],
)
def test_what_cannot_be_known_writes_nothing(variables: dict[str, str], slurmd: Slurmd) -> None:
    """A job without GPUs, or with a number that nothing is known of."""
    slurmd.gpustat.mkdir()
    slurmd.run("prolog", 7, **variables)
    assert slurmd.files() == {}
    slurmd.run("epilog", 7, **variables)


@pytest.mark.parametrize("listing", ["", "slurmd: fatal: no gres.conf", "Gres Name=gpu Count=4 x"])
def test_slurm_that_lists_nothing(listing: str, slurmd: Slurmd) -> None:
    """It is said on standard error, and no UUID is guessed."""
    slurmd.lists(listing)
    assert slurmd.starts(7, "0") == "gpustat: no UUID found for GPU 0 of job 7\n"
    assert slurmd.files() == {}


def test_a_gpu_that_nobody_has_opened(slurmd: Slurmd) -> None:
    """The driver shows question marks until then; nvidia-smi opens it."""
    slurmd.gpu(1, 3, "GPU-????????-????-????-????-????????????")
    slurmd.program("nvidia-smi", "exit 9")
    assert "no UUID found" in slurmd.starts(7, "0")
    slurmd.program("nvidia-smi", f'[ "$2" = 0000:17:00.0 ] && echo {UUIDS[1]}')
    slurmd.starts(7, "0")
    assert slurmd.files() == {UUIDS[1]: "7 alice\n"}


def test_a_program_that_hangs_does_not_hold_up_the_job(slurmd: Slurmd) -> None:
    """It is ended, with what it started."""
    slurmd.program("slurmd", "sleep 1000")
    slurmd.starts(7, "0", ROOFLINE_TIME_LIMIT_SECONDS="0.3")
    assert slurmd.files() == {}


def test_jobs_that_start_at_once(slurmd: Slurmd) -> None:
    """No line of a shared GPU is lost."""
    slurmd.lists(f"{ONE_EACH}\nslurmd: Gres Name=mps Count=200 File=/dev/nvidia3 (null)")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda job: slurmd.starts(job, "0"), range(1, 9)))
    (text,) = slurmd.files().values()
    assert sorted(text.splitlines()) == sorted(f"{job} alice" for job in range(1, 9))
