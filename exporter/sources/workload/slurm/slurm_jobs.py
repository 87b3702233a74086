# SPDX-License-Identifier: Apache-2.0
"""The source slurm: allocations by its prolog's files, jobs and users by control groups."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping

from exporter.clock import Clock
from exporter.model.workload import Allocation, Workload, WorkloadReport
from exporter.sources.interface import SLURM, NodeWorkloads, WorkloadOptions
from exporter.sources.poller import PolledSource, Unreadable
from exporter.sources.proc.procfs import MOST_BYTES, user_name
from exporter.sources.workload.slurm.cgroups import Sluids, SlurmGroups, find
from exporter.sources.workload.slurm.folders import Entry, Folder, certain_first, read_folder

LONGEST_PROLOG_SECONDS = 600.0
_BOOT = re.compile(rb"^btime (\d+)$", re.MULTILINE)

log = logging.getLogger(__name__)


def prepare(options: WorkloadOptions, clock: Clock) -> NodeWorkloads:
    """Return the source, not started."""
    return PolledSource(SLURM, Slurm(options, clock).read, clock)


class Slurm:
    """Slurm on this node, as its files show it."""

    def __init__(self, options: WorkloadOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._sluids = Sluids(options.procfs)
        self._contained = False
        """Whether any job of this node ever had the step that lasts as long as the job."""
        self._there: set[str] = set()
        """The folders that were there."""
        self._logged: frozenset[str] = frozenset()
        """What the last read was logged to lack or leave out."""
        self._left: frozenset[str] = frozenset()
        """The files of ended jobs that the last read found."""

    def read(self) -> WorkloadReport | None:
        """Return what is known now; None where this node has neither jobs' folders nor groups.

        Raises:
            Unreadable: a folder of the prolog is there and cannot be listed, or is gone.
        """
        folders = self._folders()
        found = find(self._options.sysfs)
        if not folders and found is None:
            return None
        groups = found or SlurmGroups(complete=False)
        sluids = self._sluids.of(groups.sluids)
        entries = certain_first(folders)
        ended = self._ended(entries, groups, sluids)
        self._log([problem for folder in folders for problem in folder.problems], ended)
        given = [entry for entry in entries if entry not in ended]
        users = self._users(given, groups)
        names = {job: sluid for sluid, job in sluids.items()}

        def workload(job: str) -> Workload:
            return Workload("slurm", job=job, user=users.get(job, ""), id=names.get(job, ""))

        return WorkloadReport(
            allocations=tuple(Allocation(entry.device, workload(entry.job)) for entry in given),
            allocates=bool(folders),
            in_doubt=tuple(device for folder in folders for device in folder.in_doubt),
            named={
                **{job: workload(job) for job in sorted(users.keys() | names.keys())},
                **{sluid: workload(job) for sluid, job in sluids.items()},
            },
        )

    def _folders(self) -> list[Folder]:
        folders = []
        for path in (self._options.slurm_gpustat, self._options.slurm_job_map):
            folder = read_folder(path, self._options.slurm_numbering)
            if folder is not None:
                self._there.add(path)
                folders.append(folder)
            elif path in self._there:
                raise Unreadable(f"{path} is gone")
        return folders

    def _users(self, given: Iterable[Entry], groups: SlurmGroups) -> Mapping[str, str]:
        """Return the users of jobs, where files or control groups have them."""
        if not self._options.owners:
            return {}
        users = {entry.job: entry.user for entry in given if entry.user}
        for job, group in groups.jobs.items():
            if group.uid is not None and job not in users:
                users[job] = user_name(group.uid)
        return users

    def _log(self, problems: Collection[str], ended: Iterable[Entry]) -> None:
        """Log changes: one line of problems, one of files that were left behind.

        A file is left behind that is still there at the next read: an epilog takes a moment.
        """
        left = frozenset(f"{entry.path} has job {entry.job}, which has ended" for entry in ended)
        logged = frozenset([*problems, *(left & self._left)])
        for level, lines in ((logging.WARNING, problems), (logging.INFO, left & self._left)):
            new = sorted(set(lines) - self._logged)
            if new:
                more = f" (and {len(new) - 1} more)" if len(new) > 1 else ""
                log.log(level, "source %s: %s%s", SLURM, new[0], more)
        self._logged, self._left = logged, left

    def _ended(
        self, entries: Iterable[Entry], groups: SlurmGroups, sluids: Mapping[str, str]
    ) -> frozenset[Entry]:
        """Return the entries of ended jobs, whose files no epilog has removed.

        A job has no control group yet while its prolog runs, and between its steps unless Slurm has
        PrologFlags=Contain. So the absence of one proves the end of a job only in two cases: this
        node's jobs have the step that lasts as long as the job, and the file is older than any
        prolog takes; or the node was booted since the file was written. A control group under a
        SLUID of no known job may be that of any.
        """
        found = (*groups.jobs.values(), *groups.sluids.values())
        self._contained = self._contained or any(group.contained for group in found)
        present = {*groups.jobs, *sluids.values()}
        absent = [entry for entry in entries if entry.job not in present]
        oldest = self._boot() if absent else 0.0
        if self._contained and groups.complete and len(sluids) == len(groups.sluids):
            oldest = max(oldest, self._clock.time() - LONGEST_PROLOG_SECONDS)
        return frozenset(entry for entry in absent if entry.written_unix_seconds < oldest)

    def _boot(self) -> float:
        """Return when the node was booted, in Unix time; 0 if that is not known."""
        try:
            with open(f"{self._options.procfs}/stat", "rb") as file:
                found = _BOOT.search(file.read(16 * MOST_BYTES))
        except OSError:
            return 0.0
        return 0.0 if found is None else float(found[1])
