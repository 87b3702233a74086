# SPDX-License-Identifier: Apache-2.0
"""Whose work is on each share: allocations of schedulers joined with processes.

A process belongs to the workload that its control group names; what sources know of that name
completes it. A pod that no source names is the one pod that has every share its processes are on.
While a workload has the share, its labels do not come and go with its processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from exporter.model.reading import Device, Place, Process
from exporter.model.workload import (
    NO_WORK,
    DeviceName,
    Membership,
    ShareWork,
    Workload,
    WorkloadReport,
)

MOST_WORKLOADS = 128
"""Of one GPU: any user may make control groups that look like workloads."""


Pods = frozenset[str]
"""Each as NAMESPACE/NAME."""

_Containers = Mapping[tuple[str, str], Collection[str]]

Name = tuple[str, str | int | None, int | str | None]
"""What a device is called by (mig_uuid, uuid, index, minor), so, and the GPU instance within it, or
the profile of one."""


class OnShare(NamedTuple):
    """A share, and what the driver lists on it; None where it lists nothing."""

    device: Device
    gpu_instance: int | None
    processes: tuple[Process, ...] | None

    @property
    def key(self) -> Place:
        """Which share it is."""
        return Place(self.device.uuid, self.gpu_instance)


def work_of_shares(
    reports: Sequence[WorkloadReport],
    shares: Sequence[OnShare],
    before: Mapping[Place, ShareWork] = MappingProxyType({}),
) -> dict[Place, ShareWork]:
    """Return whose work is on each share; `reports` are in order of preference."""
    given, possible = _given(reports, shares)
    named: dict[str, Workload] = {}
    for report in reversed(reports):
        named.update(report.named)
    named = {**_inferred_pods(shares, given, named), **named}
    # One that knows only some of what it gave away leaves it open whether the others are free.
    left_open = any(report.allocations and not report.allocates for report in reports)
    allocates = not left_open and any(report.allocates for report in reports)
    to = [each.workload for report in reports for each in report.allocations]
    jobs = list(_jobs(shares, named))
    # A job of which the prolog wrote nothing at all may have been given its GPU all the same.
    filed = {each.job for each in to if each.job}
    possible.update(key for key, job, _, _ in jobs if job not in filed)
    users = {job or sluid: owner for _, job, sluid, owner in reversed(jobs)}
    was = (workload for work in before.values() for workload in work.workloads)
    for each in (*was, *to, *named.values()):
        if each.scheduler == "slurm" and each.user:
            users[each.job or each.id] = each.user
    of_gpu = Counter(share.device.uuid for share in shares)
    return {
        share.key: _share_work(
            share.processes or (),
            given.get(share.key, ()),
            named,
            users,
            allocates and share.key not in possible,
            before.get(share.key, NO_WORK),
            max(1, MOST_WORKLOADS // of_gpu[share.device.uuid]),
        )
        for share in shares
    }


def pods_of(shares: Iterable[OnShare], work: Mapping[Place, ShareWork]) -> Mapping[str, Pods]:
    """Return the candidate pods of each pod UID that a process on these shares has."""
    found: dict[str, Pods] = {}
    for share in shares:
        on = work[share.key]
        there = frozenset(pod_name(each) for each in on.workloads if each.pod)
        for process in share.processes or ():
            if process.membership is not None and (uid := process.membership.pod_uid) is not None:
                of = on.of_process.get(process.pid)
                pods = there if of is None or not of.pod else frozenset([pod_name(of)])
                found[uid] = found.get(uid, pods) & pods
    return found


def with_running(
    report: WorkloadReport,
    before: WorkloadReport,
    pods: Mapping[str, Pods],
    shares: Iterable[OnShare],
) -> WorkloadReport:
    """Return the report of a source, completed by the last one of `pods` that still run.

    A kubelet that has just started answers before it knows its pods. Where it lists no device at
    all, and a pod that had one runs, it does not say either which others are free.
    """
    members = [each.membership for share in shares for each in share.processes or ()]
    running = {member.pod_uid for member in members if member is not None}
    listed = {pod_name(each.workload) for each in report.allocations}
    omitted = [of for uid, of in pods.items() if uid in running and of.isdisjoint(listed)]
    still = frozenset[str]().union(*omitted)
    kept = tuple(each for each in before.allocations if pod_name(each.workload) in still)
    named = {key: each for key, each in before.named.items() if pod_name(each) in still}
    labels = {pod: each for pod, each in before.pod_labels.items() if pod in still}
    return replace(
        report,
        allocations=(*report.allocations, *kept),
        allocates=report.allocates and (bool(report.allocations) or not kept),
        named={**named, **report.named},
        pod_labels={**labels, **report.pod_labels},
    )


def pod_name(workload: Workload) -> str:
    """Return the namespace and name of a pod."""
    return f"{workload.namespace}/{workload.pod}"


def _jobs(
    shares: Iterable[OnShare], named: Mapping[str, Workload]
) -> Iterator[tuple[Place, str, str, str]]:
    """Yield share, number and SLUID of the job, and owner, of each process that a job has."""
    for share in shares:
        for process in share.processes or ():
            if process.membership is not None and any(of := _job(process.membership, named)):
                yield share.key, *of, process.owner or ""


def _given(
    reports: Iterable[WorkloadReport], shares: Sequence[OnShare]
) -> tuple[dict[Place, tuple[Workload, ...]], set[Place]]:
    """Return the workloads that each share is given to, and the shares where that is unclear."""
    called: dict[Name, list[Place]] = {}
    for share in shares:
        for name in _names(share.device, share.gpu_instance):
            called.setdefault(name, []).append(share.key)
    given: dict[Place, dict[Workload, None]] = {}
    possible: set[Place] = set()
    for report in reports:
        for device in report.in_doubt:
            possible.update(called.get(_name(device), ()))
        for allocation in report.allocations:
            keys = called.get(_name(allocation.device), ())
            if allocation.device.profile is not None and len(keys) > 1:
                possible.update(keys)
                continue
            for key in keys:
                given.setdefault(key, {})[allocation.workload] = None
    return {key: tuple(to) for key, to in given.items()}, possible


def _name(device: DeviceName) -> Name:
    if device.mig_uuid is not None:
        return "mig_uuid", device.mig_uuid, None
    within = device.gpu_instance if device.profile is None else device.profile
    if device.uuid is not None:
        return "uuid", device.uuid, within
    if device.index is not None:
        return "index", device.index, within
    return "minor", device.minor, within


def _names(device: Device, gpu_instance: int | None) -> set[Name]:
    instances = [each for each in device.instances if each.gpu_instance == gpu_instance]
    called: set[Name] = {("mig_uuid", instance.mig_uuid, None) for instance in instances}
    within: set[int | str | None] = {None, gpu_instance}
    for instance in instances:
        within |= {"", _plain(instance.profile)}
    for kind, value in (
        ("uuid", device.uuid),
        ("index", device.index),
        ("minor", device.minor_number),
    ):
        if value is not None:
            called |= {(kind, value, which) for which in within}
    return called


def _plain(profile: str) -> str:
    """Return a profile as it stands in the names of DRA's devices: 1g.10gb+me is 1g10gb-me."""
    return profile.replace(".", "").replace("+", "-").lower()


def _inferred_pods(
    shares: Sequence[OnShare],
    given: Mapping[Place, Sequence[Workload]],
    named: Mapping[str, Workload],
) -> dict[str, Workload]:
    """Return by UID the pods that are identified by the GPUs that their processes are on."""
    candidates: dict[str, dict[Place, set[Workload]]] = {}
    for share in shares:
        containers = _containers_of_pods(given.get(share.key, ()))
        pods = {Workload("kubernetes", *pod) for pod in containers}
        for process in share.processes or ():
            uid = process.membership.pod_uid if process.membership is not None else None
            if uid is not None and uid not in named:
                candidates.setdefault(uid, {})[share.key] = pods
    having = {uid: set.intersection(*each.values()) for uid, each in candidates.items()}
    found = {uid: next(iter(pods)) for uid, pods in having.items() if len(pods) == 1}
    times = Counter(found.values())
    return {uid: pod for uid, pod in found.items() if times[pod] == 1}


def _share_work(
    processes: Iterable[Process],
    given: Sequence[Workload],
    named: Mapping[str, Workload],
    users: Mapping[str, str],
    allocates: bool,
    before: ShareWork,
    most: int,
) -> ShareWork:
    of_process: dict[int, Workload] = {}
    containers = _containers_of_pods(given)
    for process in processes:
        workload = _of_process(process, containers, named, users)
        if workload is not None:
            of_process[process.pid] = workload
    present = set(of_process.values())
    shown = {_identity(here, here.container) for here in present}
    absent = {
        each
        for to in given
        if shown.isdisjoint(_identities(to))
        for each in _steps(to, users, before)
    }
    if not present and not absent and not allocates:
        return NO_WORK
    workloads = sorted(present | absent, key=_order)
    left_out = max(0, len(workloads) - most)
    if left_out:
        # Nobody but a scheduler can have made the names of those that it gave the share to.
        names = {_identity(to, to.container) for to in given}
        workloads.sort(key=lambda each: names.isdisjoint(_identities(each)))
    allocated = True if given else (False if allocates else None)
    return ShareWork(tuple(workloads[:most]), allocated, of_process, left_out)


def _steps(given: Workload, users: Mapping[str, str], before: ShareWork) -> list[Workload]:
    """Return a workload without a process; a job's with the steps that had the last ones there."""
    if given.scheduler != "slurm":
        return [given]
    job = replace(given, user=users.get(given.job, ""))
    steps = [each.step for each in before.workloads if each.job == given.job]
    return [replace(job, step=step) for step in steps] or [job]


_order = attrgetter("scheduler", "namespace", "pod", "container", "job", "step", "user", "id")


def _containers_of_pods(given: Iterable[Workload]) -> _Containers:
    containers: dict[tuple[str, str], set[str]] = {}
    for to in given:
        if to.scheduler == "kubernetes":
            containers.setdefault((to.namespace, to.pod), set()).add(to.container)
    return containers


def _of_process(
    process: Process,
    containers: _Containers,
    named: Mapping[str, Workload],
    users: Mapping[str, str],
) -> Workload | None:
    """Return the workload of a process; None where its control group names none."""
    member = process.membership
    if member is None:
        return None
    if member.slurm_job is not None or member.slurm_id is not None:
        job, sluid = _job(member, named)
        user = users.get(job or sluid, "")
        return Workload("slurm", job=job, user=user, step=member.slurm_step or "", id=sluid)
    if member.pod_uid is not None:
        return _pod(member, containers, named)
    if member.container_id is None:
        return None
    known = named.get(member.container_id)
    runtime = member.runtime or ("" if known is None else known.runtime)
    plain = Workload("container", id=member.container_id, runtime=runtime)
    return plain if known is None else replace(known, id=member.container_id, runtime=runtime)


def _job(member: Membership, named: Mapping[str, Workload]) -> tuple[str, str]:
    """Return number and SLUID of a job, each empty where it is not known."""
    known = named.get(member.slurm_id or "") or named.get(member.slurm_job or "")
    job = member.slurm_job or ("" if known is None else known.job)
    return job, member.slurm_id or ("" if known is None else known.id)


def _pod(
    member: Membership, containers: _Containers, named: Mapping[str, Workload]
) -> Workload | None:
    """Return the container of a pod; None if nobody names the pod and pods have the share."""
    uid = member.pod_uid or ""
    known = (named.get(member.container_id or ""), named.get(uid))
    # A runtime may have a name for a container that belongs to a pod: the kubelet's counts.
    pod = next((each for each in known if each and each.scheduler == "kubernetes"), None)
    if pod is None:
        return None if containers else Workload("kubernetes", id=uid)
    if pod.container:
        return pod
    names = containers.get((pod.namespace, pod.pod), ())
    return replace(pod, container=next(iter(names))) if len(names) == 1 else pod


def _identity(workload: Workload, container: str) -> tuple[str, ...]:
    """Return what identifies a workload: its job, the container of a pod, or its id."""
    if workload.scheduler == "slurm":
        return "slurm", workload.job
    if workload.scheduler == "kubernetes":
        return "kubernetes", workload.namespace, workload.pod, container
    return workload.scheduler, workload.id


def _identities(given: Workload) -> set[tuple[str, ...]]:
    """Return the identities of its processes; a pod's process may not show its container."""
    return {_identity(given, given.container), _identity(given, "")}
