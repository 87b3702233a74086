# SPDX-License-Identifier: Apache-2.0
"""Which share of which GPU a training process runs on, and whether the driver lists it there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from exporter.model.reading import Device, Place, ShareReading
from exporter.model.training import NO_DEVICE, TrainingReport

NOWHERE = Place(None, None)

GpuShares = tuple[Device, Sequence[ShareReading]]

Listed = Mapping[str, frozenset[int]]
"""By UUID of the GPU: the pids of the processes that the driver lists on any of its shares."""


def locate(report: TrainingReport, gpus: Iterable[GpuShares]) -> Place | None:
    """Return where a process runs, by its device, else by its pid; None if neither is of this node.

    Under MIG some runtimes report the parent's UUID, and older drivers call a MIG device
    ``MIG-GPU-<uuid of the GPU>/<GPU instance>/<compute instance>``.
    """
    if report.device == NO_DEVICE:
        return NOWHERE
    if report.device is None:
        return _by_pid(report, gpus)
    digits, _, instances = _digits(report.device).partition("/")
    for device, shares in gpus:
        for instance in device.instances:
            if _digits(instance.mig_uuid) == digits:
                return Place(device.uuid, instance.gpu_instance)
        if _digits(device.uuid) != digits:
            continue
        if not device.mig:
            return Place(device.uuid, None)
        numbers = {instance.gpu_instance for instance in device.instances}
        named = instances.partition("/")[0]
        if named.isdecimal() and int(named) in numbers:
            return Place(device.uuid, int(named))
        if len(numbers) == 1:
            return Place(device.uuid, numbers.pop())
        return _by_pid(report, [(device, shares)])
    return None


def _digits(uuid: str) -> str:
    return uuid.lower().removeprefix("mig-").removeprefix("gpu-")


def _by_pid(report: TrainingReport, gpus: Iterable[GpuShares]) -> Place | None:
    pid = report.host_pids[:1]
    for device, shares in gpus:
        for share in shares:
            if any(process.pid in pid for process in share.processes or ()):
                return Place(device.uuid, share.gpu_instance)
    return None


def listed_processes(gpus: Iterable[GpuShares]) -> Listed:
    """Return the pids that the driver lists on each GPU."""
    return {
        device.uuid: frozenset(process.pid for share in shares for process in share.processes or ())
        for device, shares in gpus
    }


def verified(reports: Iterable[TrainingReport], place: Place, listed: Listed) -> bool | None:
    """Return whether the driver lists one of these or an ancestor there; None for no GPU."""
    if place.uuid is None:
        return None
    pids = listed.get(place.uuid, frozenset())
    return any(report.verified or not pids.isdisjoint(report.host_pids) for report in reports)
