# SPDX-License-Identifier: Apache-2.0
"""Which files of a prolog are of jobs that have ended, where the epilog did not take them away.

A job has no control group yet while its prolog runs, and between its steps unless Slurm has
PrologFlags=Contain. So the absence of one proves the end of a job only in two cases: this node's
jobs have the step that lasts as long as the job, and the file is older than any prolog takes; or
the node was booted since the file was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from exporter.sources.proc.procfs import MOST_BYTES
from exporter.sources.workload.slurm.folders import Entry

LONGEST_PROLOG_SECONDS = 600.0

_BOOT = re.compile(rb"^btime (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Present:
    """The jobs that have a control group on this node, by id."""

    jobs: frozenset[str]
    contained: bool
    """Whether any has the step that lasts as long as the job."""
    complete: bool
    """Whether there can be no other."""


class EndedJobs:
    """What was seen of the jobs that files name."""

    def __init__(self, procfs: str) -> None:
        self._stat = f"{procfs}/stat"
        self._contained = False
        """Whether any job of this node ever had that step."""

    def of(
        self, entries: Iterable[Entry], present: Present, unix_seconds: float
    ) -> frozenset[Entry]:
        """Return the entries of ended jobs; the time is the present, as files have it."""
        self._contained = self._contained or present.contained
        absent = [entry for entry in entries if entry.job not in present.jobs]
        oldest = self._boot() if absent else 0.0
        if self._contained and present.complete:
            oldest = max(oldest, unix_seconds - LONGEST_PROLOG_SECONDS)
        return frozenset(entry for entry in absent if entry.written_unix_seconds < oldest)

    def _boot(self) -> float:
        """Return when the node was booted, in Unix time; 0 if that is not known."""
        try:
            with open(self._stat, "rb") as file:
                found = _BOOT.search(file.read(16 * MOST_BYTES))
        except OSError:
            return 0.0
        return 0.0 if found is None else float(found[1])
