# SPDX-License-Identifier: Apache-2.0
"""Which GPU or MIG instance a device is, by what plugins and NVIDIA's DRA driver call it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from exporter.model.workload import DeviceName
from exporter.sources.workload.kubernetes.pod_resources import Held

RESOURCES = frozenset({"nvidia.com/gpu", "nvidia.com/gpu.shared"})
MIG_PREFIX = "nvidia.com/mig-"
SHARED_RESOURCE = "nvidia.com/gpu.shared"

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_WHOLE = re.compile(rf"gpu-(?P<uuid>{_UUID})", re.IGNORECASE)
_MIG = re.compile(rf"mig-(?P<uuid>{_UUID})", re.IGNORECASE)
_OLD_MIG = re.compile(rf"mig-gpu-(?P<uuid>{_UUID})/(?P<gi>\d{{1,4}})/\d{{1,4}}", re.IGNORECASE)
_GKE = re.compile(r"nvidia(?P<minor>\d{1,4})(?:/gi(?P<gi>\d{1,4}))?(?:/vgpu(?P<replica>\d{1,9}))?")
_NAMED = re.compile(rf"(?<![0-9a-z])(?P<kind>gpu|mig)-(?P<uuid>{_UUID})(?![0-9a-z])", re.IGNORECASE)
"""In a longer name, such as nvidia.com/gpu=GPU-…"""
_DRA = re.compile(r"gpu-(?P<minor>\d{1,4})")
_DRA_MIG = re.compile(r"gpu-(?P<minor>\d{1,4})-mig-(?P<profile>.+)-\d+-\d+")
_NO_GPU = re.compile(r"gpu-vfio-\d+")
"""A GPU that is handed through to a virtual machine: the driver of this node does not have it."""


class Named(NamedTuple):
    """A device, and which replica of it."""

    device: DeviceName
    replica: str


def gpu_resources(more: Collection[str]) -> Callable[[str], bool]:
    """Return what says whether a resource is GPUs: those of the device plugins, and `more`."""
    names = RESOURCES | frozenset(more)
    return lambda name: name in names or name.startswith(MIG_PREFIX)


def is_elsewhere(held: Held) -> bool:
    """Return whether it is a GPU that this node's driver does not have."""
    return bool(held.claim) and _NO_GPU.fullmatch(held.device) is not None


def named(held: Held) -> Named | None:
    """Return which device it is; None where its name does not say so."""
    if held.claim:
        device = _claimed(held)
        return None if device is None else Named(device, held.share)
    device_id, _, replica = held.device.partition("::")
    gke = _GKE.fullmatch(device_id)
    if gke is not None:
        gi = gke["gi"]
        of = DeviceName(minor=int(gke["minor"]), gpu_instance=None if gi is None else int(gi))
        return Named(of, replica or gke["replica"] or "")
    by_uuid = _by_uuid(device_id)
    return None if by_uuid is None else Named(by_uuid, replica)


def _by_uuid(device_id: str) -> DeviceName | None:
    if whole := _WHOLE.fullmatch(device_id):
        return _gpu(whole["uuid"])
    if mig := _MIG.fullmatch(device_id):
        return _instance(mig["uuid"])
    if old := _OLD_MIG.fullmatch(device_id):
        return DeviceName(uuid=f"GPU-{old['uuid'].lower()}", gpu_instance=int(old["gi"]))
    return None


def _gpu(uuid: str) -> DeviceName:
    return DeviceName(uuid=f"GPU-{uuid.lower()}")


def _instance(uuid: str) -> DeviceName:
    return DeviceName(mig_uuid=f"MIG-{uuid.lower()}")


def _claimed(held: Held) -> DeviceName | None:
    """Return which device a claim has: by a UUID in one of its names, else as its driver counts."""
    for name in (held.device, *held.cdi):
        if found := _NAMED.search(name):
            return (_gpu if found["kind"].lower() == "gpu" else _instance)(found["uuid"])
    if whole := _DRA.fullmatch(held.device):
        return DeviceName(minor=int(whole["minor"]))
    if mig := _DRA_MIG.fullmatch(held.device):
        # The releases before 25.12 have the profile's number here, which says nothing to NVML.
        profile = "" if mig["profile"].isdigit() else mig["profile"]
        return DeviceName(minor=int(mig["minor"]), profile=profile)
    return None
