# SPDX-License-Identifier: Apache-2.0
"""Unique names of jobs: the same name from two users is two jobs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from exporter.model.training import TrainingReport

MOST_BYTES = 128
"""Limit of a name with its suffix."""

Job = tuple[int | None, str]
"""The user's number, and the name that the user gave the job."""


class JobNames:
    """Assigns each job a unique name, which it keeps while it is known."""

    def __init__(self) -> None:
        self._names: dict[Job, str] = {}
        self._given: set[str] = set()

    def name(self, report: TrainingReport) -> str:
        """Return the name of a report's job: its own if unique, else with its owner or a number."""
        job = job_of(report)
        name = self._names.get(job)
        if name is None:
            candidates = _candidates(report.job, report.owner)
            name = next(each for each in candidates if each not in self._given)
            self._names[job] = name
            self._given.add(name)
        return name

    def keep(self, jobs: set[Job]) -> None:
        """Forget all other jobs; their names may be assigned again."""
        for job in self._names.keys() - jobs:
            self._given.remove(self._names.pop(job))


def job_of(report: TrainingReport) -> Job:
    """Return which job a report belongs to."""
    return report.uid, report.job


def _candidates(job: str, owner: str | None) -> Iterator[str]:
    yield job
    if owner is not None:
        yield _added(job, f"uid {owner}" if owner.isdecimal() else owner)
    for number in count(2):
        yield _added(job, str(number))


def _added(job: str, suffix: str) -> str:
    tail = f" ({suffix})"
    room = MOST_BYTES - len(tail.encode())
    return job.encode()[:room].decode(errors="ignore") + tail
