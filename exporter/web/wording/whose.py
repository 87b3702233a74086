# SPDX-License-Identifier: Apache-2.0
"""Names of workloads, jobs and owners; the Prometheus rules build the label `owner` alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from exporter.model.snapshot import SourceState
from exporter.model.workload import Workload
from exporter.web.wording.facts import Facts
from exporter.web.wording.numbers import capitalised, cut, duration

ID_DIGITS = 12
"""Length of the id of a container without a name, as in `docker ps`."""
SCHEDULERS = {"kubernetes": "Kubernetes", "slurm": "Slurm", "container": "container runtime"}
"""How each is written; the preferred one first."""


def workload_words(workload: Workload) -> str:
    """Return team-a/notebook-7, "ada, job 4711", or the name or id of a container."""
    if workload.scheduler == "kubernetes":
        return "/".join(filter(None, (workload.namespace, workload.pod))) or (
            f"pod {workload.id[:ID_DIGITS]}" if workload.id else "a pod"
        )
    if workload.scheduler == "slurm":
        job = workload.job or workload.id
        return ", ".join(filter(None, (workload.user, f"job {job}" if job else ""))) or "a job"
    return workload.container or workload.id[:ID_DIGITS] or "a container"


def words_of(workloads: Sequence[Workload]) -> tuple[str, ...]:
    """Return the distinct names of workloads, by the preferred scheduler of those that name any."""
    named = {each.scheduler for each in workloads}
    preferred = next((each for each in SCHEDULERS if each in named), None)
    return tuple(
        dict.fromkeys(workload_words(each) for each in workloads if each.scheduler == preferred)
    )


def unread_words(sources: Mapping[str, SourceState]) -> Iterator[str]:
    """Yield which schedulers cannot be read, and the age of their last answer."""
    for name, written in SCHEDULERS.items():
        source = sources.get(name)
        if source is not None and not source.up:
            age = source.age_seconds
            said = "" if age is None else f": what was known {duration(age)} ago stays"
            yield f"{capitalised(written)} cannot be read{said}"


def owner(facts: Facts) -> str | None:
    """Return the owner of a GPU: the holder's workload, "3 workloads", else the process's user.

    Of an unopened GPU, the workload that it is allocated to; None if not known.
    """
    holder = facts.holder
    if holder is not None and holder.workload is not None:
        return workload_words(holder.workload)
    several = len(facts.workloads)
    if several > 1:
        return f"{several} workloads"
    if holder is not None:
        return holder.owner
    return facts.workloads[0] if facts.workloads and is_unopened(facts) else None


def is_unopened(facts: Facts) -> bool:
    """Return whether it is allocated and no process holds it."""
    return facts.allocated is True and facts.held is False


def given(facts: Facts) -> str:
    """Return "given to team-b/train-1" for an unopened GPU; "" for any other."""
    return f"given to {cut(owner(facts) or 'somebody')}" if is_unopened(facts) else ""


RUN = re.compile(r"@(?:[0-9]{8}T[0-9]{6}-[0-9]+|slurm-[0-9]+|rdzv-[0-9a-f]{8})\Z")
"""The suffix of a default name: start time and process id, Slurm job, or rendezvous."""


def display_names(jobs: Iterable[str]) -> dict[str, str]:
    """Return each job's short name if it is unique on this node, else its full name."""
    short = {job: RUN.sub("", job) or job for job in jobs}
    counts = Counter(short.values())
    return {job: name if counts[name] == 1 else job for job, name in short.items()}
