# SPDX-License-Identifier: Apache-2.0
"""Which GPU a number in a Slurm prolog's file is: the driver's, its device file's, or unknown.

A prolog knows Slurm's own numbers, which are those of gres.conf; sites hand them on as the number
of a GPU, which is right where gres.conf lists the GPUs as the driver or their device files do
(slurm-job-exporter#63, #64). Nothing in a file says how it was numbered. What shows it is a job
that runs: its processes are on GPUs that its files name, or the numbers mean something else.

Not every process shows that. One that pam_slurm_adopt put into the step extern, such as of a user
who came by ssh, was told of no GPU: it counts only where the job has no other. And a job on more
GPUs than it has files takes what it was not given, however they are numbered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

from exporter.derive.workloads import OnShare, names
from exporter.model.workload import Allocation, DeviceName, Membership, WorkloadReport

Files = frozenset[DeviceName]

INDEX, MINOR = "the driver", "the device files"
READINGS = (INDEX, MINOR)
"""How numbers may be meant, the likelier first: by whom."""


_EXTERN = "extern"


class _Weight(IntEnum):
    """What a job showed of its numbers; of several the heaviest counts."""

    NOTHING = 0
    ADOPTED = 1
    STARTED = 2
    MORE_THAN_GIVEN = 3


class _Shown(NamedTuple):
    """In which readings a job's processes were where none of its files is."""

    weight: _Weight = _Weight.NOTHING
    wrong: frozenset[str] = frozenset()

    def and_then(self, new: _Shown) -> _Shown:
        """Return what is known after something new was seen."""
        if new.weight == self.weight:
            return _Shown(self.weight, self.wrong | new.wrong)
        return max(self, new, key=lambda each: each.weight)


class SlurmNumbers:
    """How the files of this node's prolog number GPUs, as far as nothing contradicts it.

    What contradicts is kept as long as the job's files stay the same, and so outlasts the process
    that showed it; it counts for all jobs, since one prolog writes for all.
    """

    def __init__(self) -> None:
        self._shown: dict[tuple[str, Files], _Shown] = {}
        """By job and what its files name."""
        self.reading: str | None = INDEX
        """How numbers are read now, one of READINGS; None where neither can be right."""

    def resolved(
        self, reports: Sequence[WorkloadReport], shares: Sequence[OnShare]
    ) -> list[WorkloadReport]:
        """Return the reports with every number replaced by what it names.

        Where that is not known, a job has the shares that its processes are on, and whether the
        others are given to somebody is left open.
        """
        files = _files(reports)
        on = _shares_of_jobs(reports, shares)
        self._shown = {
            key: self._shown.get(key, _Shown()).and_then(_shown(key[1], on.get(key[0], _ON_NONE)))
            for key in files.items()
        }
        wrong = frozenset().union(*(shown.wrong for shown in self._shown.values()))
        self.reading = next((each for each in READINGS if each not in wrong), None)
        named = {
            job: [
                DeviceName(uuid=each.device.uuid, gpu_instance=each.gpu_instance) for each in best
            ]
            for job, named_by in files.items()
            if not _are_more(best := on.get(job, _ON_NONE).best, named_by)
        }
        every = tuple(DeviceName(uuid=each) for each in {share.device.uuid for share in shares})
        return [self._resolve(report, named, every) for report in reports] if files else [*reports]

    def _resolve(
        self,
        report: WorkloadReport,
        by_processes: Mapping[str, Sequence[DeviceName]],
        every: tuple[DeviceName, ...],
    ) -> WorkloadReport:
        if not any(map(_is_numbered, report.allocations)):
            return report
        allocations = (
            replace(allocation, device=device)
            for allocation in report.allocations
            for device in self._named(allocation, by_processes)
        )
        return replace(
            report,
            allocations=tuple(dict.fromkeys(allocations)),
            in_doubt=(
                every
                if self.reading is None
                else tuple(_read_as(self.reading, device) for device in report.in_doubt)
            ),
        )

    def _named(
        self, allocation: Allocation, by_processes: Mapping[str, Sequence[DeviceName]]
    ) -> Sequence[DeviceName]:
        if not _is_numbered(allocation):
            return [allocation.device]
        if self.reading is None:
            return by_processes.get(allocation.workload.job, ())
        return [_read_as(self.reading, allocation.device)]


def _is_numbered(allocation: Allocation) -> bool:
    return allocation.workload.scheduler == "slurm" and allocation.device.index is not None


def _files(reports: Sequence[WorkloadReport]) -> dict[str, Files]:
    """Return what the files of each job name by number."""
    found: dict[str, set[DeviceName]] = {}
    for report in reports:
        for allocation in filter(_is_numbered, report.allocations):
            found.setdefault(allocation.workload.job, set()).add(allocation.device)
    return {job: frozenset(devices) for job, devices in found.items()}


class _On(NamedTuple):
    """The shares on which a job has processes."""

    started: list[OnShare]
    """Those of its steps."""
    adopted: list[OnShare]
    """Those of the step extern."""

    @property
    def best(self) -> list[OnShare]:
        """Return those that say most of which GPUs the job was given."""
        return self.started or self.adopted


_ON_NONE = _On([], [])


def _shares_of_jobs(reports: Sequence[WorkloadReport], shares: Sequence[OnShare]) -> dict[str, _On]:
    """Return the shares on which each job has a process, by job id."""
    found: dict[str, _On] = {}
    for share in shares:
        members = [each.membership for each in share.processes or () if each.membership is not None]
        jobs = {(_job(member, reports), member.slurm_step == _EXTERN) for member in members}
        for job, adopted in jobs:
            if job:
                on = found.setdefault(job, _On([], []))
                (on.adopted if adopted else on.started).append(share)
    return found


def _job(member: Membership, reports: Sequence[WorkloadReport]) -> str:
    if member.slurm_job is not None:
        return member.slurm_job
    known = (report.named.get(member.slurm_id or "") for report in reports)
    return next((workload.job for workload in known if workload is not None), "")


def _shown(files: Files, on: _On) -> _Shown:
    """Return what the processes of a job show now of what its files mean."""
    if not on.best:
        return _Shown()
    if _are_more(on.best, files):
        return _Shown(_Weight.MORE_THAN_GIVEN if on.started else _Weight.ADOPTED)
    return _Shown(_Weight.STARTED if on.started else _Weight.ADOPTED, _wrong(files, on.best))


def _are_more(shares: Sequence[OnShare], files: Files) -> bool:
    """Return whether shares are of more GPUs, or more instances, than are named by files."""
    if all(device.gpu_instance is not None for device in files):
        return len(shares) > len(files)
    return len({share.device.uuid for share in shares}) > len({each.index for each in files})


def _wrong(files: Files, on: Sequence[OnShare]) -> frozenset[str]:
    """Return in which readings a job has a process where none of its files is."""
    return frozenset(
        reading
        for reading in READINGS
        if any(
            not any(
                names(_read_as(reading, device), share.device, share.gpu_instance)
                for device in files
            )
            for share in on
        )
    )


def _read_as(reading: str, device: DeviceName) -> DeviceName:
    if reading != MINOR or device.index is None:
        return device
    return DeviceName(minor=device.index, gpu_instance=device.gpu_instance)
