# SPDX-License-Identifier: Apache-2.0
"""Whose Slurm jobs are on the shares: prolog files, numbered or not, beside processes in groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from exporter.derive.slurm_numbers import INDEX, SlurmNumbers
from exporter.derive.workloads import OnShare, ShareKey, work_of_shares
from exporter.model.reading import (
    Board,
    Device,
    Instance,
    Process,
    Reading,
    ShareReading,
    SlotReport,
    Vitals,
)
from exporter.model.workload import (
    Allocation,
    DeviceName,
    Membership,
    ShareWork,
    Workload,
    WorkloadReport,
)
from exporter.publisher.workloads import NodeWork

MINORS = (2, 3, 0, 1)
"""As on a node whose device files are not in the order of the bus (jobstats' page has such)."""
GPUS = tuple(
    Device(uuid=f"GPU-{index}", index=index, name="NVIDIA H100", minor_number=minor)
    for index, minor in enumerate(MINORS)
)


def given(*pairs: tuple[int | str, str], allocates: bool = True, user: str = "") -> WorkloadReport:
    """What Slurm gave away, as GPU and job; a GPU is a number, or a UUID."""
    return WorkloadReport(
        tuple(
            Allocation(
                DeviceName(index=gpu) if isinstance(gpu, int) else DeviceName(uuid=gpu),
                Workload("slurm", job=job, user=user),
            )
            for gpu, job in pairs
        ),
        allocates=allocates,
    )


def on(running: Mapping[int, str | Membership] | None = None) -> list[OnShare]:
    """All GPUs, with a process of these jobs on those that are named; pids are 100 + index."""
    shares = []
    for gpu in GPUS:
        who = (running or {}).get(gpu.index)
        member = Membership(slurm_job=who, slurm_step="0") if isinstance(who, str) else who
        process = Process(100 + gpu.index, "compute", owner="alice", membership=member)
        shares.append(OnShare(gpu, None, () if who is None else (process,)))
    return shares


def work(
    report: WorkloadReport,
    running: Mapping[int, str | Membership] | None = None,
    numbers: SlurmNumbers | None = None,
) -> list[ShareWork]:
    """Whose work is on each GPU, in their order."""
    shares = on(running)
    found = work_of_shares((numbers or SlurmNumbers()).resolved([report], shares), shares)
    return [found[ShareKey(gpu.uuid, None)] for gpu in GPUS]


def jobs(found: list[ShareWork]) -> list[list[str]]:
    """The jobs on each GPU."""
    return [[each.job for each in share.workloads] for share in found]


def allocated(found: list[ShareWork]) -> list[bool | None]:
    """Whether each GPU is given to somebody."""
    return [share.allocated for share in found]


def test_an_allocation_without_a_process() -> None:
    """The job has the GPU, before or without opening it; no step is named."""
    found = work(given(("GPU-1", "7"), user="alice"))
    assert found[1] == ShareWork((Workload("slurm", job="7", user="alice"),), True, {})
    assert allocated(found) == [False, True, False, False]


def test_a_process_completes_the_allocation() -> None:
    """One series: that of its step, with the user that the file names before the process' owner."""
    found = work(given(("GPU-1", "7"), user="bob"), {1: "7"})
    step = Workload("slurm", job="7", user="bob", step="0")
    assert found[1] == ShareWork((step,), True, {101: step})


def test_a_process_needs_no_file() -> None:
    """Without a folder of the prolog, what is free is not known."""
    found = work(WorkloadReport(), {2: "7"})
    assert jobs(found) == [[], [], ["7"], []]
    assert allocated(found) == [None] * 4
    assert found[2].workloads[0].user == "alice"


def test_a_sluid_is_the_job_that_the_source_names() -> None:
    """With its user; where it is not known, the SLUID alone identifies the job."""
    sluid = "s01ARZ3NDEKTSV"
    member = Membership(slurm_id=sluid, slurm_step="batch")
    named = WorkloadReport(named={sluid: Workload("slurm", job="7", user="bob", id=sluid)})
    assert work(named, {0: member})[0].workloads == (
        Workload("slurm", job="7", user="bob", step="batch", id=sluid),
    )
    assert work(WorkloadReport(), {0: member})[0].workloads == (
        Workload("slurm", user="alice", step="batch", id=sluid),
    )


def test_several_jobs_share_a_gpu() -> None:
    """With MPS or shards: those with a process, and those without."""
    found = work(given(("GPU-0", "7"), ("GPU-0", "8")), {0: "7"})
    assert jobs(found)[0] == ["7", "8"]


def test_numbers_are_the_drivers_as_far_as_nothing_contradicts_it() -> None:
    """A job with processes on some of its GPUs, none elsewhere, agrees with them."""
    report = given((0, "7"), (1, "7"), (3, "8"))
    assert jobs(work(report)) == [["7"], ["7"], [], ["8"]]
    assert jobs(work(report, {1: "7"})) == [["7"], ["7"], [], ["8"]]


def test_numbers_may_be_those_of_device_files() -> None:
    """A process of the job on the GPU whose device file has the number shows it, for all jobs."""
    found = work(given((0, "7"), (1, "8")), {2: "7"})
    assert jobs(found) == [[], [], ["7"], ["8"]]
    assert allocated(found) == [False, False, True, True]


def test_processes_win_where_the_numbers_cannot_be_right() -> None:
    """No number is believed then: what has a process is given away, the rest is not known."""
    found = work(given((0, "7"), (1, "7"), (3, "8")), {1: "7", 3: "7"})
    assert jobs(found) == [[], ["7"], [], ["7"]]
    assert allocated(found) == [None, True, None, True]


def test_what_is_free_is_open_beside_a_kubelet_too() -> None:
    """It knows all that it gave away, but not what Slurm did."""
    shares = on({3: "7"})
    reports = SlurmNumbers().resolved([WorkloadReport(allocates=True), given((0, "7"))], shares)
    found = work_of_shares(reports, shares)
    assert [found[share.key].allocated for share in shares] == [None, None, None, True]


def test_a_job_under_a_sluid_contradicts_as_well() -> None:
    """Its number is what the source says."""
    sluid = "s01ARZ3NDEKTSV"
    report = WorkloadReport(
        given((0, "7")).allocations, True, {sluid: Workload("slurm", job="7", id=sluid)}
    )
    assert jobs(work(report, {3: Membership(slurm_id=sluid)})) == [[], [], [], ["7"]]


def test_a_uuid_is_believed_beside_numbers_that_are_not() -> None:
    """Only what a number names is in doubt."""
    found = work(given((0, "7"), ("GPU-1", "8")), {3: "7"})
    assert jobs(found) == [[], ["8"], [], ["7"]]
    assert allocated(found) == [None, True, None, True]


def test_what_was_contradicted_stays_so_while_the_files_are_the_same() -> None:
    """The end of the process that showed it makes no number right; new files are judged anew."""
    numbers = SlurmNumbers()
    report = given((0, "7"), (3, "8"))
    assert numbers.reading == INDEX
    work(report, {3: "7"}, numbers)
    assert numbers.reading is None
    assert jobs(work(report, None, numbers)) == [[]] * 4
    assert jobs(work(given((3, "8")), None, numbers)) == [[], [], [], ["8"]]
    assert numbers.reading == INDEX


def test_a_requeued_job_is_judged_by_its_new_files() -> None:
    """Between two readings of the files it seems to be elsewhere."""
    numbers = SlurmNumbers()
    work(given((0, "7")), {1: "7"}, numbers)
    assert numbers.reading is None
    assert jobs(work(given((1, "7")), {1: "7"}, numbers)) == [[], ["7"], [], []]


def adopted(job: str) -> Membership:
    """A process that pam_slurm_adopt put into a job, as of a user who came by ssh."""
    return Membership(slurm_job=job, slurm_step="extern")


def test_a_job_on_more_gpus_than_it_was_given_shows_nothing_of_the_numbers() -> None:
    """It takes what it was not given, whatever they mean; so it may have before, on one."""
    numbers = SlurmNumbers()
    report = given((1, "7"), (3, "8"))
    assert numbers.reading == INDEX
    work(report, {0: "7"}, numbers)
    assert numbers.reading is None
    for running in ({0: "7", 1: "7"}, {0: "7"}, {}):
        found = work(report, running, numbers)
        assert allocated(found) == [False, True, False, True]
        assert jobs(found)[1:] == [["7"], [], ["8"]]
    assert numbers.reading == INDEX


def test_where_no_number_is_believed_a_job_on_more_gpus_than_given_names_none() -> None:
    """Which of them it was given is not known then."""
    found = work(given((0, "7"), (1, "8")), {3: "7", 1: "8", 2: "8"})
    assert allocated(found) == [None, None, None, True]
    assert jobs(found) == [[], ["8"], ["8"], ["7"]]


def test_whoever_came_by_ssh_shows_nothing_beside_the_jobs_own_steps() -> None:
    """Nobody told that shell which GPUs are the job's."""
    numbers = SlurmNumbers()
    report = given((1, "7"), (3, "8"))
    work(report, {0: adopted("7")}, numbers)
    assert numbers.reading is None
    found = work(report, {0: adopted("7"), 1: "7"}, numbers)
    assert allocated(found) == [False, True, False, True]
    assert allocated(work(report, {0: adopted("7")}, numbers)) == [False, True, False, True]
    assert allocated(work(report, {0: adopted("7"), 2: adopted("7")})) == [False, True, False, True]


def test_a_file_that_is_in_doubt_leaves_only_its_gpu_open() -> None:
    """By the numbers as they are read now."""
    report = replace(given((0, "7")), in_doubt=(DeviceName(index=3), DeviceName(uuid="GPU-1")))
    assert allocated(work(report)) == [True, None, False, None]
    assert allocated(work(report, {2: "7"})) == [False, None, True, False]
    assert allocated(work(replace(report, allocations=()))) == [False, None, False, None]
    named = replace(given((0, "7"), ("GPU-1", "8")), in_doubt=(DeviceName(uuid="GPU-1"),))
    assert allocated(work(named)) == [True, True, False, False]


def test_nothing_is_free_by_a_kubelets_word_while_no_number_is_believed() -> None:
    """Also after the process that showed it has ended."""
    numbers = SlurmNumbers()
    work(given((0, "7")), {3: "7"}, numbers)
    shares = on()
    reports = numbers.resolved([WorkloadReport(allocates=True), given((0, "7"))], shares)
    found = work_of_shares(reports, shares)
    assert [found[share.key].allocated for share in shares] == [None] * 4


def test_a_job_without_a_numbered_file_contradicts_nothing() -> None:
    """It may have been there before the prolog was installed."""
    assert jobs(work(given((0, "7")), {1: "9"})) == [["7"], ["9"], [], []]


def test_another_schedulers_index_is_left_alone() -> None:
    """Only Slurm's prolog is in doubt."""
    pod = Allocation(DeviceName(index=0), Workload("kubernetes", "team", "pod"))
    report = WorkloadReport((*given((1, "7")).allocations, pod), True)
    assert [each.scheduler for each in work(report, {3: "7"})[0].workloads] == ["kubernetes"]


def test_instances_by_number() -> None:
    """GPU.INSTANCE is one GPU instance; a process on another one contradicts it."""
    gpu = Device(
        uuid="GPU-0",
        index=0,
        name="NVIDIA H100",
        mig=True,
        instances=(Instance(1, 0, "1g.10gb", "MIG-1"), Instance(2, 0, "1g.10gb", "MIG-2")),
    )
    report = WorkloadReport(
        (
            Allocation(DeviceName(index=0, gpu_instance=1), Workload("slurm", job="7")),
            Allocation(DeviceName(mig_uuid="MIG-2"), Workload("slurm", job="8")),
        ),
        allocates=True,
    )

    def shares(where: int) -> list[OnShare]:
        process = Process(5, "compute", membership=Membership(slurm_job="7", slurm_step="0"))
        return [OnShare(gpu, each, (process,) if each == where else ()) for each in (1, 2)]

    for where, expected in ((1, [["7"], ["8"]]), (2, [[], ["7", "8"]])):
        here = shares(where)
        found = work_of_shares(SlurmNumbers().resolved([report], here), here)
        assert [[w.job for w in found[share.key].workloads] for share in here] == expected


class Said:
    """A source that says what it is given."""

    name = "slurm"
    state = None

    def __init__(self, report: WorkloadReport) -> None:
        self.said = report

    def report(self) -> WorkloadReport:
        return self.said


def test_how_numbers_are_read_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    """One line each time."""
    source = Said(given((0, "7")))
    node = NodeWork([source])
    caplog.set_level("INFO")

    def lines(running: Mapping[int, str]) -> list[str]:
        caplog.clear()
        node.take([slot(share) for share in on(running)], owners=True)
        return [record.getMessage() for record in caplog.records]

    assert lines({}) == []
    (line,) = lines({3: "7"})
    assert "no file that is named by a number is believed" in line
    assert node.of("GPU-3", None).allocated is True
    assert lines({3: "7"}) == []
    source.said = given((3, "7"))
    assert lines({3: "7"}) == [
        "files of Slurm's prolog are taken to have the numbers of the driver"
    ]


def slot(share: OnShare) -> SlotReport:
    """A report of a GPU of which only its processes are read."""
    reading = Reading(
        share.device, 0.0, 0.0, Vitals(), Board(), (ShareReading(processes=share.processes),)
    )
    return SlotReport(share.device.index, share.device, reading, None, {})
