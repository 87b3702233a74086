# SPDX-License-Identifier: Apache-2.0
"""What the kubelet's pod resources API says: which container of which pod has which devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from exporter.sources.workload.kubernetes.protobuf import Message

SERVICE = "v1.PodResourcesLister"
"""List answers with what is given away; its request has no fields."""
DRA_DRIVER = "gpu.nvidia.com"

MOST_DEVICE = 512
MOST_HELD = 65_536
"""Devices in one answer: beyond any node, with a thousand replicas of every instance."""


@dataclass(frozen=True, slots=True)
class Held:
    """One device that a container has."""

    namespace: str
    pod: str
    container: str
    device: str
    """As the device plugin or the driver of the claim names it."""
    resource: str = ""
    """What the container asked for; empty where it came by a claim."""
    claim: str = ""
    """NAMESPACE/NAME of the claim."""
    cdi: tuple[str, ...] = ()
    """Names under which the runtime gets the device of a claim."""
    share: str = ""
    """Which share of a device that several claims may have."""


def held_devices(answer: bytes, is_gpu: Callable[[str], bool]) -> tuple[Held, ...]:
    """Return the GPUs of all containers that are listed.

    Args:
        answer: a ListPodResourcesResponse.
        is_gpu: whether a resource of this name is one.

    Raises:
        Malformed: it is no such message.
    """
    found = (held for pod in Message(answer).each(1) for held in _held(pod, is_gpu))
    return tuple(islice(found, MOST_HELD))


def names(answer: bytes) -> Iterator[str]:
    """Yield NAMESPACE/POD of all that are listed, as `held_devices` does."""
    for pod in Message(answer).each(1):
        yield f"{pod.text(2)}/{pod.text(1)}"


def _held(pod: Message, is_gpu: Callable[[str], bool]) -> Iterator[Held]:
    for container in pod.each(3):
        held = Held(pod.text(2), pod.text(1), container.text(1), "")
        for devices in container.each(2):
            resource = devices.text(1)
            if is_gpu(resource):
                for device in devices.texts(2, MOST_DEVICE):
                    yield replace(held, device=device, resource=resource)
        for claim in container.each(5):
            for given in claim.each(4):
                if given.text(2) == DRA_DRIVER:
                    yield replace(
                        held,
                        device=given.text(4, MOST_DEVICE),
                        claim=f"{claim.text(3)}/{claim.text(2)}",
                        cdi=tuple(n for cdi in given.each(1) for n in cdi.texts(1, MOST_DEVICE)),
                        share=given.text(5),
                    )
