# SPDX-License-Identifier: Apache-2.0
"""The source slurm as a whole: what it reports of a node's files and control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.model.workload import Allocation, DeviceName, Workload, WorkloadReport
from exporter.sources.interface import WorkloadOptions
from exporter.sources.poller import PolledSource
from exporter.sources.workload.slurm.slurm_jobs import Slurm, prepare
from tests.clocks import ManualClock
from tests.sources.workload.slurm.trees import SCOPE, SLUID, Node

NOW = 2_000_000.0
GPU = "GPU-8f9ba0f5-8b5f-4d6a-a3d1-0a1b2c3d4e5f"


class Rig(Node):
    """A node, and the source that reads it."""

    def __init__(self, root: Path, *, owners: bool = True) -> None:
        super().__init__(root)
        self.job_map = root / "job-mapping"
        self.gpustat = root / "gpustat"
        self.clock = ManualClock(unix_seconds=NOW)
        self.options = WorkloadOptions(
            slurm_job_map=str(self.job_map),
            slurm_gpustat=str(self.gpustat),
            procfs=str(self.procfs),
            sysfs=str(self.sysfs),
            owners=owners,
        )
        self.slurm = Slurm(self.options, self.clock)

    def give(self, name: str, text: str, age_seconds: float = 0.0) -> Path:
        """Write a file as a prolog does, into the folder that its name belongs to."""
        folder = self.job_map if name[0].isdigit() else self.gpustat
        folder.mkdir(exist_ok=True)
        file = folder / name
        file.write_text(text)
        self.touch(file, age_seconds)
        return file

    def touch(self, file: Path, age_seconds: float = 0.0) -> None:
        """Set when a file was written."""
        written = self.clock.time() - age_seconds
        os.utime(file, (written, written))

    def end(self, path: str) -> None:
        """Take a control group away, as the kernel does: nothing in it has to be removed."""
        folder = self.groups / path
        for parent, _, files in os.walk(folder, topdown=False):
            for file in files:
                Path(parent, file).unlink()
            Path(parent).rmdir()

    def read(self) -> WorkloadReport:
        report = self.slurm.read()
        assert report is not None
        return report

    def jobs(self) -> list[str]:
        """The jobs that something is given to."""
        return sorted(allocation.workload.job for allocation in self.read().allocations)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_node_without_slurm_has_no_such_source(rig: Rig) -> None:
    """It is not listed among the sources, and asks on."""
    assert rig.slurm.read() is None
    source = prepare(rig.options, rig.clock)
    assert (source.name, source.report(), source.state) == ("slurm", None, None)


def test_folders_without_jobs(rig: Rig) -> None:
    """Every GPU is free; without any folder that is not known."""
    rig.group(SCOPE)
    assert rig.read() == WorkloadReport()
    rig.gpustat.mkdir()
    assert rig.read() == WorkloadReport(allocates=True)


def test_what_is_given_with_all_that_is_known_of_it(rig: Rig) -> None:
    """The user of one folder, the SLUID of the control group."""
    rig.give(GPU, "7 alice\n")
    rig.give("3", "8\n")
    rig.group(f"{SCOPE}/{SLUID}/step_0/slurm", [rig.process(50, "slurmstepd: [7.0]")])
    alice = Workload("slurm", job="7", user="alice", id=SLUID)
    assert rig.read() == WorkloadReport(
        allocations=(
            Allocation(DeviceName(uuid=GPU), alice),
            Allocation(DeviceName(index=3), Workload("slurm", job="8")),
        ),
        allocates=True,
        named={"7": alice, SLUID: alice},
    )


def test_users_of_version_1(rig: Rig) -> None:
    """They are in the path; a file's word comes first."""
    rig.group("freezer/slurm/uid_4000000000/job_7")
    rig.group("freezer/slurm/uid_4000000000/job_8")
    rig.give(GPU, "8 alice\n")
    assert {job: each.user for job, each in rig.read().named.items()} == {
        "7": "4000000000",
        "8": "alice",
    }


def test_no_user_where_none_may_be_named(tmp_path: Path) -> None:
    """--no-process.owner."""
    rig = Rig(tmp_path, owners=False)
    rig.give(GPU, "8 alice\n")
    rig.group("freezer/slurm/uid_0/job_8")
    assert rig.read() == WorkloadReport(
        (Allocation(DeviceName(uuid=GPU), Workload("slurm", job="8")),), allocates=True
    )


def test_what_cannot_be_read_leaves_it_open_whether_its_gpu_is_free(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest is reported, and the log has one line until something changes."""
    rig.give("0", "7\n")
    rig.give("1", "?\n")
    os.mkfifo(rig.job_map / "2")
    for _ in range(2):
        report = rig.read()
        assert [each.workload.job for each in report.allocations] == ["7"]
        assert report.allocates
        assert report.in_doubt == (DeviceName(index=1), DeviceName(index=2))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        f"source slurm: {rig.job_map}/1: a line does not begin with the number of a job "
        "(and 1 more)"
    )
    (rig.job_map / "2").unlink()
    rig.give("1", "8\n")
    assert not rig.read().in_doubt
    rig.give("1", "?\n")
    rig.read()
    assert len(caplog.records) == 2


@pytest.mark.parametrize("instead", ["nothing", "a file"])
def test_a_folder_that_cannot_be_read_keeps_the_last_word(rig: Rig, instead: str) -> None:
    """Its state says so; it is read again when it is back."""
    rig.group(SCOPE)
    file = rig.give(GPU, "7 alice\n")
    source = PolledSource("slurm", rig.slurm.read, rig.clock)
    source.read_once()
    before = source.report()
    file.unlink()
    rig.gpustat.rmdir()
    if instead == "a file":
        rig.gpustat.write_text("")
    source.read_once()
    assert source.report() is before
    assert source.state is not None
    assert not source.state.up
    rig.gpustat.unlink(missing_ok=True)
    rig.give(GPU, "8 bob\n")
    source.read_once()
    assert source.state.up
    report = source.report()
    assert report is not None
    assert [each.workload.job for each in report.allocations] == ["8"]


EXTERN = f"{SCOPE}/job_7/step_extern"


def test_a_job_that_starts_has_no_control_group_yet(rig: Rig) -> None:
    """Nor has one of several nodes whose steps are elsewhere, without PrologFlags=Contain: nothing
    shows the end of the job then."""
    rig.group(f"{SCOPE}/job_8/step_0")
    rig.booted(int(NOW) - 100_000)
    rig.give(GPU, "7 alice\n", age_seconds=50_000)
    assert rig.jobs() == ["7"]


def test_a_file_of_before_the_boot(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """No job outlives that; the log says so once."""
    caplog.set_level("INFO")
    rig.booted(int(NOW) - 100)
    file = rig.give("0", "7\n", age_seconds=101)
    rig.give("1", "8\n", age_seconds=99)
    assert rig.jobs() == ["8"]
    assert caplog.records == []  # its epilog may be about to take it away
    for _ in range(2):
        assert rig.read().allocates
    (record,) = caplog.records
    assert record.getMessage() == f"source slurm: {file} has job 7, which has ended"
    rig.group(EXTERN)  # a job that runs is not called ended, whatever clocks say
    assert rig.jobs() == ["7", "8"]


def test_an_epilog_that_failed(rig: Rig) -> None:
    """The job had the step that lasts as long as the job, and its file is older than a prolog."""
    rig.give(GPU, "7 alice\n", age_seconds=601)
    rig.group(EXTERN)
    assert rig.jobs() == ["7"]
    rig.end(f"{SCOPE}/job_7")
    assert rig.jobs() == []
    rig.give(GPU, "7 alice\n")  # it was requeued, and its prolog has run again
    assert rig.jobs() == ["7"]


def test_the_last_job_of_a_node_with_version_1(rig: Rig) -> None:
    """Slurm removes the folder of its user as well; its own stays, and has nothing in it."""
    rig.give(GPU, "7 alice\n", age_seconds=601)
    rig.group("freezer/slurm_node1/uid_1000/job_7/step_extern")
    assert rig.jobs() == ["7"]
    rig.end("freezer/slurm_node1/uid_1000")
    assert rig.jobs() == []
    rig.end("freezer/slurm_node1")
    rig.give("0", "8\n", age_seconds=601)
    assert rig.jobs() == ["7", "8"]  # nothing of Slurm's can be seen any more


def test_a_file_that_is_older_than_any_prolog_takes(rig: Rig) -> None:
    """Where jobs have the step that lasts, as another job showed: the daemon may have restarted."""
    rig.give(GPU, "7 alice\n", age_seconds=601)
    rig.give("0", "8\n", age_seconds=599)
    assert rig.jobs() == ["7", "8"]
    rig.group(f"{SCOPE}/job_9/step_extern")
    assert rig.jobs() == ["8"]
    rig.end(f"{SCOPE}/job_9")
    rig.clock.advance(2.0)
    assert rig.jobs() == []


@pytest.mark.parametrize("kind", ["no groups", "a SLUID of no known job"])
def test_where_not_all_jobs_are_known_none_has_ended(kind: str, rig: Rig) -> None:
    """As in a container that does not see the host's control groups."""
    rig.give(GPU, "7 alice\n", age_seconds=5000)
    rig.group(EXTERN)
    assert rig.jobs() == ["7"]
    rig.end(SCOPE)
    if kind != "no groups":
        rig.group(f"{SCOPE}/{SLUID}/step_0/slurm")
    assert rig.jobs() == ["7"]
