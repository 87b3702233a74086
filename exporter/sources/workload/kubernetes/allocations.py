# SPDX-License-Identifier: Apache-2.0
"""Which pod has which GPU: device ids of plugins and claims, without pods that have ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from exporter.model.workload import Allocation, DeviceName, Workload
from exporter.sources.workload.kubernetes.kubelet_api import ContainerDevice, Pod

PodName = tuple[str, str]
"""Namespace and name."""
RESOURCES = frozenset({"nvidia.com/gpu", "nvidia.com/gpu.shared"})
MIG_PREFIX = "nvidia.com/mig-"
SHARED_RESOURCE = "nvidia.com/gpu.shared"

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_OLD_MIG = re.compile(rf"mig-gpu-(?P<uuid>{_UUID})/(?P<gi>\d{{1,4}})/\d{{1,4}}", re.IGNORECASE)
_GKE = re.compile(r"nvidia(?P<minor>\d{1,4})(?:/gi(?P<gi>\d{1,4}))?(?:/vgpu(?P<replica>\d{1,9}))?")
_NAMED = re.compile(rf"(?<![0-9a-z])(?P<kind>gpu|mig)-(?P<uuid>{_UUID})(?![0-9a-z])", re.IGNORECASE)
"""In a longer name, such as nvidia.com/gpu=GPU-…"""
_DRA = re.compile(r"gpu-(?P<minor>\d{1,4})")
_DRA_MIG = re.compile(r"gpu-(?P<minor>\d{1,4})-mig-(?P<profile>.+)-\d+-\d+")
_NO_GPU = re.compile(r"gpu-vfio-\d+")
"""A GPU that is handed through to a virtual machine: the driver of this node does not have it."""


def gpu_resources(more: Collection[str]) -> Callable[[str], bool]:
    """Return a predicate for resources that are GPUs: those of the device plugins, and `more`."""
    names = RESOURCES | frozenset(more)
    return lambda name: name in names or name.startswith(MIG_PREFIX)


def is_elsewhere(listed: ContainerDevice) -> bool:
    """Return whether it is a GPU that this node's driver does not have."""
    return bool(listed.claim) and _NO_GPU.fullmatch(listed.device) is not None


def device_of(listed: ContainerDevice) -> tuple[DeviceName, str] | None:
    """Return which device it is, and which replica of it; None where its name does not say so."""
    if listed.claim:
        device = _claimed(listed)
        return None if device is None else (device, listed.share)
    device_id, _, replica = listed.device.partition("::")
    gke = _GKE.fullmatch(device_id)
    if gke is not None:
        gi = gke["gi"]
        of = DeviceName(minor=int(gke["minor"]), gpu_instance=None if gi is None else int(gi))
        return of, replica or gke["replica"] or ""
    if named := _NAMED.fullmatch(device_id):
        return _named(named), replica
    if old := _OLD_MIG.fullmatch(device_id):
        uuid = f"GPU-{old['uuid'].lower()}"
        return DeviceName(uuid=uuid, gpu_instance=int(old["gi"])), replica
    return None


def _named(found: re.Match[str]) -> DeviceName:
    uuid = found["uuid"].lower()
    if found["kind"].lower() == "gpu":
        return DeviceName(uuid=f"GPU-{uuid}")
    return DeviceName(mig_uuid=f"MIG-{uuid}")


def _claimed(listed: ContainerDevice) -> DeviceName | None:
    """Return which device a claim has: by a UUID in one of its names, else as its driver counts."""
    for name in (listed.device, *listed.cdi):
        if found := _NAMED.search(name):
            return _named(found)
    if whole := _DRA.fullmatch(listed.device):
        return DeviceName(minor=int(whole["minor"]))
    if mig := _DRA_MIG.fullmatch(listed.device):
        # The releases before 25.12 have the profile's number here, which says nothing to NVML.
        profile = "" if mig["profile"].isdigit() else mig["profile"]
        return DeviceName(minor=int(mig["minor"]), profile=profile)
    return None


def without_ended(
    listed: Iterable[ContainerDevice], pods: Mapping[PodName, Pod]
) -> tuple[ContainerDevice, ...]:
    """Return the devices without those of pods that are known to have ended."""
    ended = {name for name, pod in pods.items() if pod.ended}
    return tuple(each for each in listed if (each.namespace, each.pod) not in ended)


def allocations_of(
    listed: Iterable[ContainerDevice],
    pods: Mapping[PodName, Pod],
    watchers: Iterable[re.Pattern[str]],
) -> tuple[tuple[Allocation, ...], tuple[str, ...]]:
    """Return the allocations of GPUs, and the ids of devices that name no known GPU.

    Args:
        listed: the devices of all containers.
        pods: what is known of their pods.
        watchers: NAMESPACE/POD of pods that only watch the GPUs they are given.
    """
    allocations: dict[Allocation, None] = {}
    unknown: dict[str, None] = {}
    patterns = tuple(watchers)
    for each in listed:
        name = f"{each.namespace}/{each.pod}"
        if is_elsewhere(each) or any(pattern.fullmatch(name) for pattern in patterns):
            continue
        found = device_of(each)
        if found is None:
            unknown[each.device] = None
            continue
        pod = pods.get((each.namespace, each.pod))
        uid = "" if pod is None else pod.uid
        workload = Workload("kubernetes", each.namespace, each.pod, each.container, id=uid)
        allocations[Allocation(found[0], workload, found[1], each.claim)] = None
    return tuple(allocations), tuple(unknown)


class Successions:
    """Decides which of several pods has an exclusive device: the one that was seen last.

    A kubelet before 1.34 may list a pod that has ended beside the one that has its GPU now. Those
    that were there at the first look cannot be told apart: then all of them have it.
    """

    def __init__(self) -> None:
        self._round = 0
        self._since: dict[str, dict[PodName, int]] = {}
        """By device: the pods that have it, and the round in which each was first seen with it."""

    def present(self, listed: Sequence[ContainerDevice]) -> tuple[ContainerDevice, ...]:
        """Return the devices listed now, without those that an ended pod is still listed with."""
        self._round += 1
        since: dict[str, dict[PodName, int]] = {}
        for each in listed:
            if _exclusive(each):
                before = self._since.get(each.device, {})
                pod = (each.namespace, each.pod)
                since.setdefault(each.device, {})[pod] = before.get(pod, self._round)
        self._since = since
        latest = {device: max(pods.values()) for device, pods in since.items()}
        return tuple(
            each
            for each in listed
            if not _exclusive(each)
            or since[each.device][each.namespace, each.pod] == latest[each.device]
        )


def _exclusive(listed: ContainerDevice) -> bool:
    shared = "::" in listed.device or "/vgpu" in listed.device or listed.resource == SHARED_RESOURCE
    return not listed.claim and not shared
