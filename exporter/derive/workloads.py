# SPDX-License-Identifier: Apache-2.0
"""Whose work is on each share: what schedulers gave away, joined with the processes that are there.

A process belongs to the workload that its control group names; what sources know of that name
completes it. A pod that no source names is the one pod that has every share its processes are on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from exporter.model.reading import Device, Process
from exporter.model.workload import (
    NO_WORK,
    DeviceName,
    Membership,
    ShareWork,
    Workload,
    WorkloadReport,
)


class ShareKey(NamedTuple):
    """One share: a whole GPU, or one GPU instance of it."""

    uuid: str
    gpu_instance: int | None


Name = tuple[str, str | int | None, int | str | None]
"""What a device is called by (mig_uuid, uuid, index, minor), so, and the GPU instance within it, or
the profile of one."""


class OnShare(NamedTuple):
    """A share, and what the driver lists on it; None where it lists nothing."""

    device: Device
    gpu_instance: int | None
    processes: tuple[Process, ...] | None

    @property
    def key(self) -> ShareKey:
        """Which share it is."""
        return ShareKey(self.device.uuid, self.gpu_instance)


def work_of_shares(
    reports: Sequence[WorkloadReport], shares: Sequence[OnShare]
) -> dict[ShareKey, ShareWork]:
    """Return whose work is on each of these shares.

    Args:
        reports: what each source of workloads knows, the preferred one first.
        shares: every share of the node that is read.
    """
    given, possible = _given(reports, shares)
    named: dict[str, Workload] = {}
    for report in reversed(reports):
        named.update(report.named)
    named = {**_inferred_pods(shares, given, named), **named}
    # One that knows only some of what it gave away leaves it open whether the others are free.
    left_open = any(report.allocations and not report.allocates for report in reports)
    allocates = not left_open and any(report.allocates for report in reports)
    return {
        share.key: _share_work(
            share.processes or (),
            given.get(share.key, ()),
            named,
            allocates and share.key not in possible,
        )
        for share in shares
    }


def _given(
    reports: Iterable[WorkloadReport], shares: Sequence[OnShare]
) -> tuple[dict[ShareKey, list[Workload]], set[ShareKey]]:
    """Return to whom each share is given, and those of which it is not known whether they are.

    A GPU that is divided is given with all its instances.
    """
    called: dict[Name, list[ShareKey]] = {}
    for share in shares:
        for name in _names(share.device, share.gpu_instance):
            called.setdefault(name, []).append(share.key)
    given: dict[ShareKey, list[Workload]] = {}
    possible: set[ShareKey] = set()
    for report in reports:
        for device in report.in_doubt:
            possible.update(called.get(_name(device), ()))
        for allocation in report.allocations:
            keys = called.get(_name(allocation.device), ())
            if allocation.device.profile is not None and len(keys) > 1:
                possible.update(keys)
                continue
            for key in keys:
                to = given.setdefault(key, [])
                if allocation.workload not in to:
                    to.append(allocation.workload)
    return given, possible


def names(name: DeviceName, device: Device, gpu_instance: int | None) -> bool:
    """Return whether a scheduler's name for a device is that of a share.

    The name of a whole GPU is that of each of its instances.
    """
    return _name(name) in _names(device, gpu_instance)


def _name(device: DeviceName) -> Name:
    """Return the name by which a scheduler calls a device."""
    if device.mig_uuid is not None:
        return "mig_uuid", device.mig_uuid, None
    within = device.gpu_instance if device.profile is None else device.profile
    if device.uuid is not None:
        return "uuid", device.uuid, within
    if device.index is not None:
        return "index", device.index, within
    return "minor", device.minor, within


def _names(device: Device, gpu_instance: int | None) -> set[Name]:
    """Return every name that a share may be called by."""
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
    given: Mapping[ShareKey, Sequence[Workload]],
    named: Mapping[str, Workload],
) -> dict[str, Workload]:
    """Return by UID the pods that only their GPUs identify: one pod has all that they run on.

    Where that is the same pod for two UIDs, one of them uses GPUs that were not given to it: which
    one is not known.
    """
    candidates: dict[str, set[Workload]] = {}
    for share in shares:
        pods = {
            Workload("kubernetes", to.namespace, to.pod)
            for to in given.get(share.key, ())
            if to.scheduler == "kubernetes"
        }
        for process in share.processes or ():
            uid = process.membership.pod_uid if process.membership is not None else None
            if uid is not None and uid not in named:
                candidates[uid] = candidates[uid] & pods if uid in candidates else set(pods)
    found = {uid: next(iter(pods)) for uid, pods in candidates.items() if len(pods) == 1}
    times = Counter(found.values())
    return {uid: replace(pod, id=uid) for uid, pod in found.items() if times[pod] == 1}


def _share_work(
    processes: Iterable[Process],
    given: Sequence[Workload],
    named: Mapping[str, Workload],
    allocates: bool,
) -> ShareWork:
    of_process: dict[int, Workload] = {}
    for process in processes:
        workload = _of_process(process, given, named)
        if workload is not None:
            of_process[process.pid] = workload
    present = dict.fromkeys(of_process.values())
    absent = [to for to in given if not any(_covers(here, to) for here in present)]
    if not present and not absent and not allocates:
        return NO_WORK
    workloads = sorted({*present, *absent}, key=_order)
    allocated = True if given else (False if allocates else None)
    return ShareWork(tuple(workloads), allocated, of_process)


def _order(workload: Workload) -> tuple[str, ...]:
    return (
        workload.scheduler,
        workload.namespace,
        workload.pod,
        workload.container,
        workload.job,
        workload.step,
        workload.user,
        workload.id,
    )


def _of_process(
    process: Process, given: Sequence[Workload], named: Mapping[str, Workload]
) -> Workload | None:
    """Return the workload of a process; None where its control group names none."""
    member = process.membership
    if member is None:
        return None
    if member.slurm_job is not None or member.slurm_id is not None:
        return _slurm_step(member, process.owner, given, named)
    if member.pod_uid is not None:
        return _pod(member, given, named)
    if member.container_id is None:
        return None
    known = named.get(member.container_id)
    runtime = member.runtime or ("" if known is None else known.runtime)
    plain = Workload("container", id=member.container_id, runtime=runtime)
    return plain if known is None else replace(known, id=member.container_id, runtime=runtime)


def _slurm_step(
    member: Membership,
    owner: str | None,
    given: Sequence[Workload],
    named: Mapping[str, Workload],
) -> Workload:
    known = named.get(member.slurm_id or "") or named.get(member.slurm_job or "")
    job = member.slurm_job or ("" if known is None else known.job)
    users = [to.user for to in given if to.scheduler == "slurm" and to.job == job and to.user]
    return Workload(
        "slurm",
        job=job,
        user=(known.user if known is not None else "")
        or (users[0] if users else "")
        or owner
        or "",
        step=member.slurm_step or "",
        id=member.slurm_id or ("" if known is None else known.id),
    )


def _pod(
    member: Membership, given: Sequence[Workload], named: Mapping[str, Workload]
) -> Workload | None:
    """Return the container of a pod, completed by the name of its only container on the share.

    None for a pod without a name on a share that pods have: it is one of these, not known which.
    """
    uid = member.pod_uid or ""
    known = (named.get(member.container_id or ""), named.get(uid))
    # A runtime may have a name for a container that belongs to a pod: the kubelet's counts.
    pod = next((each for each in known if each and each.scheduler == "kubernetes"), None)
    if pod is None:
        candidates = any(to.scheduler == "kubernetes" for to in given)
        return None if candidates else Workload("kubernetes", id=uid)
    pod = replace(pod, id=uid)
    if pod.container:
        return pod
    containers = {
        to.container for to in given if (to.namespace, to.pod) == (pod.namespace, pod.pod)
    }
    return replace(pod, container=containers.pop()) if len(containers) == 1 else pod


def _covers(here: Workload, given: Workload) -> bool:
    """Return whether a workload that has a process is the one that the share was given to."""
    if here.scheduler != given.scheduler:
        return False
    if here.scheduler == "slurm":
        return here.job == given.job
    if here.scheduler == "kubernetes":
        same_pod = (here.namespace, here.pod) == (given.namespace, given.pod)
        return same_pod and here.container in ("", given.container)
    return here.id == given.id
