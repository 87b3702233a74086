# SPDX-License-Identifier: Apache-2.0
"""What the kubelet's pod resources API says: which container of which pod has which devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from exporter.sources.workload.kubernetes.protobuf import Budget, fields, nested, text

SERVICE = "v1.PodResourcesLister"
"""List answers with what is given away; its request has no fields."""
DRA_DRIVER = "gpu.nvidia.com"

MOST_NAME = 253
"""What Kubernetes allows for the name of a pod or a claim; other names are shorter."""
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
    found: list[Held] = []
    budget = Budget()
    for number, value in fields(memoryview(answer), budget):
        if number == 1:
            _pod(nested(value), is_gpu, budget, found)
    return tuple(found[:MOST_HELD])


def names(answer: bytes) -> Iterator[str]:
    """Yield NAMESPACE/POD of all that are listed, as `held_devices` does."""
    budget = Budget()
    for number, value in fields(memoryview(answer), budget):
        if number == 1:
            of = {each: item for each, item in fields(nested(value), budget) if each in (1, 2)}
            yield "/".join(text(of.get(each, memoryview(b"")), MOST_NAME) for each in (2, 1))


def _pod(
    message: memoryview, is_gpu: Callable[[str], bool], budget: Budget, found: list[Held]
) -> None:
    name = namespace = ""
    containers: list[memoryview] = []
    for number, value in fields(message, budget):
        if number == 1:
            name = text(value, MOST_NAME)
        elif number == 2:
            namespace = text(value, MOST_NAME)
        elif number == 3:
            containers.append(nested(value))
    for container in containers:
        if len(found) < MOST_HELD:
            _container(container, Held(namespace, name, "", ""), is_gpu, budget, found)


def _container(
    message: memoryview,
    of: Held,
    is_gpu: Callable[[str], bool],
    budget: Budget,
    found: list[Held],
) -> None:
    container = ""
    devices: list[tuple[str, str]] = []
    claimed: list[memoryview] = []
    for number, value in fields(message, budget):
        if number == 1:
            container = text(value, MOST_NAME)
        elif number == 2:
            devices += _devices(nested(value), is_gpu, budget)
        elif number == 5:
            claimed.append(nested(value))
    found += [
        Held(of.namespace, of.pod, container, device, resource) for resource, device in devices
    ]
    for claim in claimed:
        _claim(claim, Held(of.namespace, of.pod, container, ""), budget, found)


def _devices(
    message: memoryview, is_gpu: Callable[[str], bool], budget: Budget
) -> list[tuple[str, str]]:
    """Return resource and id of the devices; the name of the resource stands before them."""
    resource = ""
    ids: list[str] = []
    for number, value in fields(message, budget):
        if number == 1:
            resource = text(value, MOST_NAME)
            if not is_gpu(resource):
                return []
        elif number == 2:
            ids.append(text(value, MOST_DEVICE))
    return [(resource, each) for each in ids] if is_gpu(resource) else []


def _claim(message: memoryview, of: Held, budget: Budget, found: list[Held]) -> None:
    name = namespace = ""
    resources: list[memoryview] = []
    for number, value in fields(message, budget):
        if number == 2:
            name = text(value, MOST_NAME)
        elif number == 3:
            namespace = text(value, MOST_NAME)
        elif number == 4:
            resources.append(nested(value))
    for resource in resources:
        held = _claimed(resource, of, f"{namespace}/{name}", budget)
        if held is not None:
            found.append(held)


def _claimed(message: memoryview, of: Held, claim: str, budget: Budget) -> Held | None:
    """Return a device of a claim; None if another driver gave it."""
    driver = device = share = ""
    cdi: list[str] = []
    for number, value in fields(message, budget):
        if number == 1:
            cdi += [
                text(name, MOST_DEVICE)
                for inner, name in fields(nested(value), budget)
                if inner == 1
            ]
        elif number == 2:
            driver = text(value, MOST_NAME)
        elif number == 4:
            device = text(value, MOST_DEVICE)
        elif number == 5:
            share = text(value, MOST_NAME)
    if driver != DRA_DRIVER:
        return None
    return Held(of.namespace, of.pod, of.container, device, "", claim, tuple(cdi), share)
