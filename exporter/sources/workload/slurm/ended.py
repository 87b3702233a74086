# SPDX-License-Identifier: Apache-2.0
"""Which files of a prolog are of jobs that have ended, where the epilog did not take them away.

A job has no control group yet while its prolog runs, and between its steps unless Slurm has
PrologFlags=Contain. So the absence of one proves the end of a job only in three cases: it had the
step that lasts as long as the job, while the file was the same; or this node's jobs have that step
and the file is older than any prolog takes; or the node was booted since the file was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from exporter.sources.proc.procfs import MOST_BYTES
from exporter.sources.workload.slurm.folders import Entry, Stamp

LONGEST_PROLOG_SECONDS = 600.0

_BOOT = re.compile(rb"^btime (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Present:
    """The jobs that have a control group on this node, by id."""

    jobs: frozenset[str] = frozenset()
    contained: frozenset[str] = frozenset()
    """Those of them that have the step that lasts as long as the job."""
    complete: bool = False
    """Whether there can be no other."""


class EndedJobs:
    """What was seen of the jobs that files name."""

    def __init__(self, procfs: str) -> None:
        self._stat = f"{procfs}/stat"
        self._alive: dict[tuple[str, str], Stamp] = {}
        """By file and job: the file as it was while the job had the step that lasts."""
        self._contained = False
        """Whether any job of this node ever had that step."""

    def of(
        self, entries: Iterable[Entry], present: Present, unix_seconds: float
    ) -> frozenset[Entry]:
        """Return the entries of ended jobs; the time is the present, as files have it."""
        self._contained = self._contained or bool(present.contained)
        alive: dict[tuple[str, str], Stamp] = {}
        absent: list[Entry] = []
        for entry in entries:
            key = (entry.path, entry.job)
            if entry.job not in present.jobs:
                absent.append(entry)
            elif entry.job in present.contained:
                alive[key] = entry.stamp
        seen = {
            (entry.path, entry.job): entry.stamp
            for entry in absent
            if self._alive.get((entry.path, entry.job)) == entry.stamp
        }
        self._alive = {**seen, **alive}
        booted = self._boot() if absent else 0.0
        oldest = unix_seconds - LONGEST_PROLOG_SECONDS if self._contained else booted
        return frozenset(
            entry
            for entry in absent
            if _written(entry) < booted
            or (present.complete and ((entry.path, entry.job) in seen or _written(entry) < oldest))
        )

    def _boot(self) -> float:
        """Return when the node was booted, in Unix time; 0 if that is not known."""
        try:
            with open(self._stat, "rb") as file:
                found = _BOOT.search(file.read(16 * MOST_BYTES))
        except OSError:
            return 0.0
        return 0.0 if found is None else float(found[1])


def _written(entry: Entry) -> float:
    return entry.stamp.modified_nanoseconds / 1e9
