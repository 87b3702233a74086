# SPDX-License-Identifier: Apache-2.0
"""Which job a SLUID is, without asking slurmctld: its slurmstepd says so in its title.

Where that cannot be seen, the environment of one of the job's own processes does, if it can be
read. A user can put another number there: so it is only asked of what is in a control group that
Slurm made and that has a SLUID.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice

from exporter.sources.proc.procfs import read_file
from exporter.sources.workload.slurm.cgroups import JobGroup

MOST_STEPS = 64
MOST_PROCESSES = 16
"""Of a job, that are asked: of Slurm's own, and of the user's."""

_TITLE = re.compile(rb"slurmstepd: \[(\d{1,10})\.[^\]\0]*\]")
_VARIABLE = re.compile(rb"(?:^|\0)SLURM_JOB_ID=(\d{1,10})(?=\0|$)")
_MOST_LIST_BYTES = 64 * 1024


class Sluids:
    """The jobs of SLUIDs; each is looked up until it is known, and kept while the job is there."""

    def __init__(self, procfs: str) -> None:
        self._procfs = procfs
        self._jobs: dict[str, str] = {}

    def of(self, groups: Mapping[str, JobGroup]) -> dict[str, str]:
        """Return the job ids by SLUID, of those that are known."""
        self._jobs = {
            sluid: job
            for sluid, group in groups.items()
            if (job := self._jobs.get(sluid) or self._ask(group.path)) is not None
        }
        return dict(self._jobs)

    def _ask(self, path: str) -> str | None:
        steps = list(islice(_steps(path), MOST_STEPS))
        # Only Slurm's own processes are in "slurm", those of the user are in "user".
        own = (pid for step in steps for pid in _pids(f"{step}/slurm"))
        users = (pid for step in steps for pid in _users_pids(f"{step}/user"))
        for pid in islice(own, MOST_PROCESSES):
            title = _TITLE.match(read_file(self._procfs, pid, "cmdline"))
            if title is not None:
                return title[1].decode()
        for pid in islice(users, MOST_PROCESSES):
            variable = _VARIABLE.search(read_file(self._procfs, pid, "environ"))
            if variable is not None:
                return variable[1].decode()
        return None


def _steps(path: str) -> Iterator[str]:
    return (each for each in _folders(path) if os.path.basename(each).startswith("step_"))


def _users_pids(path: str) -> Iterator[int]:
    yield from _pids(path)
    for task in _folders(path):
        yield from _pids(task)


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as listing:
            found = [entry.path for entry in listing if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(found)


def _pids(path: str) -> Iterator[int]:
    """Yield the processes of a control group that are in this pid namespace."""
    try:
        with open(f"{path}/cgroup.procs", "rb") as file:
            listed = file.read(_MOST_LIST_BYTES)
    except OSError:
        return
    for word in listed.split():
        if word.isdigit() and word != b"0":
            yield int(word)
