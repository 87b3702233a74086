# SPDX-License-Identifier: Apache-2.0
"""Which share of which GPU a training process runs on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from exporter.model.reading import Device, ShareReading
from exporter.model.training import NO_DEVICE, TrainingReport


class Place(NamedTuple):
    """A share of a GPU as the labels name it; without a UUID it stands for no GPU at all."""

    uuid: str | None
    gpu_instance: int | None


NOWHERE = Place(None, None)

KnownGpu = tuple[Device, Sequence[ShareReading]]
"""A GPU, and its shares with the processes on them."""


def locate(report: TrainingReport, gpus: Iterable[KnownGpu]) -> Place | None:
    """Return where a process runs: by the device that it reports, else by its pid.

    None where neither is known here.

    A UUID counts by its digits alone: under MIG some runtimes give the parent's, and older drivers
    name a MIG device ``MIG-GPU-<uuid of the GPU>/<GPU instance>/<compute instance>``.
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
        known = {instance.gpu_instance for instance in device.instances}
        named = instances.partition("/")[0]
        if named.isdecimal() and int(named) in known:
            return Place(device.uuid, int(named))
        if len(known) == 1:
            return Place(device.uuid, known.pop())
        return _by_pid(report, [(device, shares)])
    return None


def _digits(uuid: str) -> str:
    return uuid.lower().removeprefix("mig-").removeprefix("gpu-")


def _by_pid(report: TrainingReport, gpus: Iterable[KnownGpu]) -> Place | None:
    itself = report.host_pids[:1]
    for device, shares in gpus:
        for share in shares:
            if any(process.pid in itself for process in share.processes or ()):
                return Place(device.uuid, share.gpu_instance)
    return None
