# SPDX-License-Identifier: Apache-2.0
"""Which jobs Slurm has on this node, by the control groups that its daemons made.

Under version 1 they are in .../slurm[_NODE]/uid_UID/job_ID of every hierarchy, under version 2 in
.../[NODE_]slurmstepd.scope, wherever CgroupSlice or a container that slurmd is in puts that. There
a job's folder is job_ID or, from 26.05 on, its SLUID. Which job that is stands in the title of its
slurmstepd.
"""

from __future__ import annotations

import glob
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from exporter.sources.proc.procfs import read_file

MOST_FOLDERS = 4096
"""How many are looked at to find those of Slurm."""
MOST_JOBS = 4096
MOST_GROUPS = 64
MOST_PROCESSES = 16
"""Slurm's own of a job, that are read."""
DEEPEST = 8
"""A slurmd in the container of a pod is that deep."""

_SCOPE = re.compile(r"(?:.+_)?slurmstepd\.scope")
_TREE = re.compile(r"slurm(?:_.+)?")
_USER = re.compile(r"uid_([0-9]{1,10})")
_JOB = re.compile(r"job_([0-9]{1,10})")
_SLUID = re.compile(r"s[0-9A-HJKMNP-TV-Z]{13}")
_UNITS = (".service", ".mount", ".socket", ".swap", ".automount", ".timer")
"""Units of systemd that are no parents of a scope of Slurm's."""
_EXTERN = "step_extern"
_TITLE = re.compile(rb"slurmstepd: \[(\d{1,10})\.[^\]\0]*\]")
_MOST_LIST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class JobGroup:
    """The control group of one job."""

    path: str
    uid: int | None = None
    """Of its user, where the path has it."""
    contained: bool = False
    """Whether it has the step that lasts as long as the job (PrologFlags=Contain)."""


@dataclass(slots=True)
class SlurmGroups:
    """All control groups of Slurm's jobs on this node."""

    jobs: dict[str, JobGroup] = field(default_factory=dict)
    """By job id."""
    sluids: dict[str, JobGroup] = field(default_factory=dict)
    """By SLUID, of jobs whose path has that instead."""
    complete: bool = True
    """Whether there can be no other."""


def find(sysfs: str) -> SlurmGroups | None:
    """Return the control groups of Slurm's jobs; None where Slurm has none at all."""
    groups = SlurmGroups()
    candidates = list(_candidates(f"{sysfs}/fs/cgroup", groups))
    for path, name in candidates:
        if _SCOPE.fullmatch(name):
            _take_jobs(path, None, groups)
        else:
            for user in _folders(path, groups):
                if (uid := _USER.fullmatch(user)) is not None:
                    _take_jobs(f"{path}/{user}", int(uid[1]), groups)
    return groups if candidates else None


def _candidates(root: str, groups: SlurmGroups) -> Iterator[tuple[str, str]]:
    """Yield path and name of possible groups of Slurm, the shallowest first."""
    waiting = deque([(root, 0)])
    looked_at = 0
    while waiting:
        parent, depth = waiting.popleft()
        looked_at += 1
        if looked_at > MOST_FOLDERS:
            groups.complete = False
            return
        for name in _folders(parent, groups):
            path = f"{parent}/{name}"
            if _SCOPE.fullmatch(name) or _TREE.fullmatch(name):
                yield path, name
            elif depth < DEEPEST and not name.endswith(_UNITS):
                waiting.append((path, depth + 1))


def _take_jobs(path: str, uid: int | None, groups: SlurmGroups) -> None:
    for name in _folders(path, groups):
        job, sluid = _JOB.fullmatch(name), _SLUID.fullmatch(name)
        known = groups.sluids if sluid else groups.jobs
        key = name if sluid else "" if job is None else job[1]
        if not key:  # such as "system", which is no job
            continue
        if key not in known and len(known) >= MOST_JOBS:
            groups.complete = False
            return
        before = known.get(key)
        contained = os.path.isdir(f"{path}/{name}/{_EXTERN}")
        if before is None:
            known[key] = JobGroup(f"{path}/{name}", uid, contained)
        elif contained and not before.contained:  # another hierarchy knows more
            known[key] = JobGroup(f"{path}/{name}", before.uid if uid is None else uid, contained)


def _folders(path: str, groups: SlurmGroups) -> list[str]:
    """Return the names of the folders in a folder; note if they cannot be listed."""
    try:
        with os.scandir(path) as listing:
            return [entry.name for entry in listing if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:  # the job has ended in between
        return []
    except OSError:
        groups.complete = False
        return []


class Sluids:
    """The jobs of SLUIDs; looked up until known, kept while the job is there."""

    def __init__(self, procfs: str) -> None:
        self._procfs = procfs
        self._jobs: dict[str, str] = {}

    def of(self, groups: Mapping[str, JobGroup]) -> dict[str, str]:
        """Return the job ids by SLUID, of those that are known."""
        self._jobs = {
            sluid: job
            for sluid, group in groups.items()
            if (job := self._jobs.get(sluid) or self._look_up(group.path)) is not None
        }
        return dict(self._jobs)

    def _look_up(self, path: str) -> str | None:
        # Only Slurm's own processes are in "slurm", those of the user are in "user" and its tasks.
        lists = sorted(glob.iglob(f"{glob.escape(path)}/step_*/slurm/cgroup.procs"))
        for pid in islice(_pids(lists[:MOST_GROUPS]), MOST_PROCESSES):
            title = _TITLE.match(read_file(self._procfs, pid, "cmdline"))
            if title is not None:
                return title[1].decode()
        return None


def _pids(lists: Iterable[str]) -> Iterator[int]:
    """Yield the processes in these lists, in this pid namespace."""
    for path in lists:
        with suppress(OSError), open(path, "rb") as file:
            words = file.read(_MOST_LIST_BYTES).split()
            yield from (int(word) for word in words if word.isdigit() and word != b"0")
