# SPDX-License-Identifier: Apache-2.0
"""The labels that dcgm-exporter gives every series of a GPU, or of one of its instances."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from exporter.exposition.dcgm import Names
from exporter.exposition.formats import labels_text
from exporter.model.reading import Device
from exporter.model.snapshot import Gpu, Snapshot
from exporter.model.workload import NO_WORK, ShareWork, Workload

HOST_LABEL: Mapping[Names, str] = {"legacy": "Hostname", "current": "hostname"}
DRIVER_LABEL: Mapping[Names, str] = {
    "legacy": "DCGM_FI_DRIVER_VERSION",
    "current": "DCGM_FI_SYSTEM_DRIVER_VERSION",
}
IDENTITY_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName")
INSTANCE_LABELS = ("GPU_I_PROFILE", "GPU_I_ID")
WORK_LABELS = ("container", "hpc_job", "namespace", "pod")
ERROR_LABELS = ("err_code", "err_msg")
OTHER_LABELS = ("pod_uid", "vgpu", "xid")
"""Labels of some series, or by configuration of dcgm-exporter."""
RESERVED = frozenset(
    (*IDENTITY_LABELS, *INSTANCE_LABELS, *WORK_LABELS, *ERROR_LABELS, *OTHER_LABELS)
).union(HOST_LABEL.values(), DRIVER_LABEL.values())
"""Names that a pod's label may not have, because a series would have them twice."""

Pairs = tuple[tuple[str, str], ...]

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
_PART_OF_INSTANCE = re.compile(r"^\d+c\.")
"""The prefix of the profile of a compute instance that is a part of its GPU instance."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The labels of a GPU or instance."""

    text: str
    """All labels, between the braces of a sample."""
    identity: Pairs
    labels: Pairs
    """The driver's version and the labels of the pod."""
    attributes: Pairs

    def of(self, own: Iterable[tuple[str, str]]) -> str:
        """Return the labels of a series with labels of its own; an error's are attributes."""
        labels, attributes = list(self.labels), list(self.attributes)
        for pair in own:
            (attributes if pair[0] in ERROR_LABELS else labels).append(pair)
        return labels_text((*self.identity, *sorted(labels), *sorted(attributes)))


def label_name(name: str) -> str:
    """Return the name of a pod's label as a valid label name of Prometheus.

    dcgm-exporter leaves a leading digit, and Prometheus refuses its page.
    """
    cleaned = _NOT_IN_NAMES.sub("_", name)
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned


def _pod_labels(labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the labels of a pod; of labels with the same valid name the first."""
    taken = set(RESERVED)
    for name in sorted(labels):
        cleaned = label_name(name)
        if cleaned and not cleaned.startswith("__") and cleaned not in taken:
            taken.add(cleaned)
            yield cleaned, labels[name]


def _first(workloads: Iterable[Workload], scheduler: str) -> Workload:
    unknown = Workload("container")
    return next((each for each in workloads if each.scheduler == scheduler), unknown)


def _profile(device: Device, gpu_instance: int) -> str:
    found = (each.profile for each in device.instances if each.gpu_instance == gpu_instance)
    return _PART_OF_INSTANCE.sub("", next(found, ""))


def owners_of(
    snapshot: Snapshot, names: Names, hostname: str
) -> dict[tuple[str, int | None], Owner]:
    """Return the owner of each GPU, and of each instance, by UUID and GPU instance."""
    pods, host = snapshot.pod_labels, [(HOST_LABEL[names], hostname)] if hostname else []
    return {
        (gpu.device.uuid, instance): _owner(gpu.device, instance, work, pods, names, host)
        for gpu in snapshot.gpus
        for instance, work in _shares(gpu)
    }


def _owner(
    device: Device,
    instance: int | None,
    work: ShareWork,
    pods: Mapping[str, Mapping[str, str]],
    names: Names,
    host: list[tuple[str, str]],
) -> Owner:
    pod = _first((each for each in work.workloads if each.pod), "kubernetes")
    job = _first((each for each in work.workloads if each.job), "slurm")
    values = (
        str(device.index),
        device.uuid,
        device.pci_bus_id or "",
        f"nvidia{device.index}",
        device.name,
    )
    identity = list(zip(IDENTITY_LABELS, values, strict=True))
    if instance is not None:
        of_instance = (_profile(device, instance), str(instance))
        identity += zip(INSTANCE_LABELS, of_instance, strict=True)
    identity += host
    driver = [(DRIVER_LABEL[names], device.driver_version)] if device.driver_version else []
    labels = sorted((*driver, *_pod_labels(pods.get(f"{pod.namespace}/{pod.pod}", {}))))
    of_work = (pod.container, job.job, pod.namespace, pod.pod)
    attributes = [pair for pair in zip(WORK_LABELS, of_work, strict=True) if pair[1]]
    text = labels_text((*identity, *labels, *attributes))
    return Owner(text, tuple(identity), tuple(labels), tuple(attributes))


def _shares(gpu: Gpu) -> Iterator[tuple[int | None, ShareWork]]:
    """Yield the work on a GPU and, while MIG is on, on each instance; the board then has none."""
    whole = NO_WORK
    for share in gpu.shares:
        if share.gpu_instance is None:
            whole = share.work
        else:
            yield share.gpu_instance, share.work
    yield None, whole
