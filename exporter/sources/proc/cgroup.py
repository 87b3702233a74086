# SPDX-License-Identifier: Apache-2.0
"""The workload of a process by its control group: paths of Slurm, Kubernetes and runtimes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from exporter.model.workload import Membership
from exporter.sources.proc.procfs import MOST_BYTES, read_file, start_time

_ID = "[0-9a-f]{64}"
_RUNTIMES = {
    "docker": "docker",
    "libpod": "podman",
    "libpod-payload": "podman",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "cri-o",
}
"""By the word in the path; what monitors a container, such as crio-conmon, is not in it."""
_CONTAINER = re.compile(
    rf"[/:](?:(?P<word>{'|'.join(sorted(_RUNTIMES, reverse=True))})[-/:])?(?P<id>{_ID})(?:\.scope)?"
    # Podman's pods are folders with such a name too, and its containers lie in them.
    r"(?![^/])(?!/libpod-)"
)
_POD = re.compile(
    r"/(?:[^/:]*-)?pod(?P<uid>[0-9a-f]{8}(?:[_-][0-9a-f]{4}){3}[_-][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?:\.slice)?(?![^/:])"
)
_DELETED = " (deleted)"
"""The kernel puts it behind the path of a group that is gone."""
_USERS_OWN = re.compile(r"/user-[0-9]+\.slice/|/user@[0-9]+\.service/")
"""Below it any user names groups as they like, and runs containers without root."""
_STEP = r"(?:/step_(?P<step>[A-Za-z0-9_+.]+))?(?=/|$)"
_JOB = re.compile(
    rf"/(?:slurm(?:_[^/]+)?/uid_[0-9]+|(?:[^/]+_)?slurmstepd\.scope)/job_(?P<job>[0-9]+){_STEP}"
)
_SLUID = re.compile(rf"/(?:[^/]+_)?slurmstepd\.scope/(?P<id>s[0-9A-HJKMNP-TV-Z]{{13}}){_STEP}")


def memberships(procfs: str, pids: Iterable[int]) -> dict[int, Membership | None]:
    """Return the workloads of these processes, by PID; None where unreadable or unknown. They are
    read each time: a process may be moved."""
    return {pid: of_process(procfs, pid) for pid in set(pids)}


def of_process(procfs: str, pid: int) -> Membership | None:
    """Return the workload of a process; None if its cgroup is unreadable or of no known kind."""
    started = start_time(procfs, pid)
    content = read_file(procfs, pid, "cgroup")
    if start_time(procfs, pid) != started:
        return None  # another process has the PID now, or none has
    if len(content) == MOST_BYTES:
        content = content[: content.rfind(b"\n") + 1]  # a truncated path may name another workload
    return membership(content.decode("utf-8", "replace"))


def membership(text: str) -> Membership | None:
    """Return the workload that /proc/PID/cgroup names; None if it is of no known kind.

    Of several hierarchies (version 1) the one that says most counts: managers need not have put the
    process into all of them.
    """
    paths = [line.split(":", 2)[2] for line in text.split("\n") if line.count(":") >= 2]
    found = [each for path in paths if (each := _of_path(path.removesuffix(_DELETED)))]
    return max(found, key=_says, default=None)


def _says(member: Membership) -> tuple[bool, ...]:
    """Return the rank of a membership: first a job, then a pod, then a container."""
    return (
        member.slurm_job is not None or member.slurm_id is not None,
        member.slurm_step is not None,
        member.pod_uid is not None,
        member.container_id is not None,
        member.runtime is not None,
    )


def _of_path(path: str) -> Membership | None:
    """Return the workload of a cgroup path.

    A job counts wherever it runs. Of pods within pods and containers within containers it is the
    outer one, which the kubelet or the runtime of this node knows; of a pod within a container,
    as kind makes them, the pod. In a user's own slice there are only containers.
    """
    own = _USERS_OWN.search(path)
    managed = path if own is None else path[: own.start()]
    job = _JOB.search(managed)
    if job is not None:
        return Membership(slurm_job=job["job"], slurm_step=job["step"])
    sluid = _SLUID.search(managed)
    if sluid is not None:
        return Membership(slurm_id=sluid["id"], slurm_step=sluid["step"])
    pod = _POD.search(managed)
    container = _CONTAINER.search(path, 0 if pod is None else pod.end())
    if container is None and pod is None:
        return None
    return Membership(
        pod_uid=None if pod is None else pod["uid"].replace("_", "-"),
        container_id=None if container is None else container["id"],
        runtime=None if container is None else _RUNTIMES.get(container["word"] or ""),
    )
