# SPDX-License-Identifier: Apache-2.0
"""Which GPU a number in a Slurm prolog's file is: the driver's, its device file's, or unknown.

A prolog knows Slurm's own numbers, which are those of gres.conf; sites hand them on as the number
of a GPU, which is right where gres.conf lists the GPUs as the driver or their device files do
(slurm-job-exporter#63, #64). Nothing in a file says how it was numbered. What shows it is a job
that runs: its processes are on GPUs that its files name, or the numbers mean something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from exporter.derive.workloads import OnShare, names
from exporter.model.workload import Allocation, DeviceName, Membership, WorkloadReport

Files = frozenset[DeviceName]

INDEX, MINOR = "the driver", "the device files"
READINGS = (INDEX, MINOR)
"""How numbers may be meant, the likelier first: by whom."""


class SlurmNumbers:
    """How the files of this node's prolog number GPUs, as far as nothing contradicts it.

    What contradicts is kept as long as the job's files stay the same, and so outlasts the process
    that showed it; it counts for all jobs, since one prolog writes for all.
    """

    def __init__(self) -> None:
        self._contradicted: dict[tuple[str, Files], frozenset[str]] = {}
        """By job and what its files name: in which readings its processes were elsewhere."""
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
        self._contradicted = {
            key: self._contradicted.get(key, frozenset()) | _wrong(key[1], on.get(key[0], ()))
            for key in files.items()
        }
        wrong = frozenset().union(*self._contradicted.values())
        self.reading = next((each for each in READINGS if each not in wrong), None)
        return [self._resolve(report, on) for report in reports] if files else list(reports)

    def _resolve(
        self, report: WorkloadReport, on: Mapping[str, Sequence[OnShare]]
    ) -> WorkloadReport:
        if not any(map(_is_numbered, report.allocations)):
            return report
        allocations = (
            resolved
            for allocation in report.allocations
            for resolved in self._named(allocation, on)
        )
        return replace(
            report,
            allocations=tuple(dict.fromkeys(allocations)),
            allocates=report.allocates and self.reading is not None,
        )

    def _named(
        self, allocation: Allocation, on: Mapping[str, Sequence[OnShare]]
    ) -> Iterator[Allocation]:
        if not _is_numbered(allocation):
            yield allocation
        elif self.reading is not None:
            yield replace(allocation, device=_read_as(self.reading, allocation.device))
        else:
            for share in on.get(allocation.workload.job, ()):
                device = DeviceName(uuid=share.device.uuid, gpu_instance=share.gpu_instance)
                yield replace(allocation, device=device)


def _is_numbered(allocation: Allocation) -> bool:
    return allocation.workload.scheduler == "slurm" and allocation.device.index is not None


def _files(reports: Sequence[WorkloadReport]) -> dict[str, Files]:
    """Return what the files of each job name by number."""
    found: dict[str, set[DeviceName]] = {}
    for report in reports:
        for allocation in filter(_is_numbered, report.allocations):
            found.setdefault(allocation.workload.job, set()).add(allocation.device)
    return {job: frozenset(devices) for job, devices in found.items()}


def _shares_of_jobs(
    reports: Sequence[WorkloadReport], shares: Sequence[OnShare]
) -> dict[str, list[OnShare]]:
    """Return the shares on which each job has a process, by job id."""
    found: dict[str, list[OnShare]] = {}
    for share in shares:
        jobs = {_job(process.membership, reports) for process in share.processes or ()}
        for job in jobs - {""}:
            found.setdefault(job, []).append(share)
    return found


def _job(member: Membership | None, reports: Sequence[WorkloadReport]) -> str:
    if member is None or (member.slurm_job is None and member.slurm_id is None):
        return ""
    if member.slurm_job is not None:
        return member.slurm_job
    known = (report.named.get(member.slurm_id or "") for report in reports)
    return next((workload.job for workload in known if workload is not None), "")


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
    if reading == INDEX:
        return device
    return DeviceName(minor=device.index, gpu_instance=device.gpu_instance)
