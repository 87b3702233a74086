# SPDX-License-Identifier: Apache-2.0
"""The kubelet's answers: devices of containers (pod resources API) and pods (pods API)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

LIST = "/v1.PodResourcesLister/List"
"""Lists the devices of all containers; its request has no fields."""
LIST_PODS = "/v1alpha1.Pods/ListPods"
"""Lists every pod; its request has no fields. The name stayed when the API became beta."""
DRA_DRIVER = "gpu.nvidia.com"
MOST_LABELS = 64
"""Of one pod, those that are published."""
ENDED_PHASES = frozenset({"Succeeded", "Failed"})

_CONTAINER_ID = re.compile(r"[a-z0-9.+-]+://([0-9a-f]{64})")
_STATUSES = (8, 10, 13)
"""Fields with the states of containers: the usual, init and ephemeral ones."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Types of a field on the wire; the two others are of groups, which are obsolete."""
_LONGEST_VARINT_BYTES = 10
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}


@dataclass(frozen=True, slots=True)
class ContainerDevice:
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


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of this node."""

    namespace: str
    name: str
    uid: str
    ended: bool = False
    containers: tuple[tuple[str, str], ...] = ()
    """Id, of 64 hexadecimal digits, and name."""
    labels: tuple[tuple[str, str], ...] = ()
    """Those that are published, by their names."""


def listed_devices(
    answer: bytes, is_gpu: Callable[[str], bool]
) -> tuple[frozenset[str], tuple[ContainerDevice, ...]]:
    """Return NAMESPACE/POD of all pods in a ListPodResourcesResponse, and their GPUs.

    `is_gpu` says whether a resource of this name is one.

    Raises:
        NotProtobuf: it is no such message.
    """
    pods = tuple(Message(answer).each(1))
    names = frozenset(f"{pod.text(2)}/{pod.text(1)}" for pod in pods)
    return names, tuple(device for pod in pods for device in _devices(pod, is_gpu))


def _devices(pod: Message, is_gpu: Callable[[str], bool]) -> Iterator[ContainerDevice]:
    for container in pod.each(3):
        device = ContainerDevice(pod.text(2), pod.text(1), container.text(1), "")
        for devices in container.each(2):
            resource = devices.text(1)
            if is_gpu(resource):
                for name in devices.texts(2):
                    yield replace(device, device=name, resource=resource)
        for claim in container.each(5):
            for given in claim.each(4):
                if given.text(2) == DRA_DRIVER:
                    yield replace(
                        device,
                        device=given.text(4),
                        claim=f"{claim.text(3)}/{claim.text(2)}",
                        cdi=tuple(name for cdi in given.each(1) for name in cdi.texts(1)),
                        share=given.text(5),
                    )


def listed_pods(answer: bytes, labels: re.Pattern[str] | None) -> tuple[Pod, ...]:
    """Return the pods of a ListPodsResponse, with the labels whose whole name matches.

    Raises:
        NotProtobuf: it is no such message.
    """
    pods = [_pod(pod, labels) for pod in Message(answer).each(1)]
    return tuple(pod for pod in pods if pod.uid and pod.name)


def _pod(pod: Message, labels: re.Pattern[str] | None) -> Pod:
    metadata, status = pod.one(1), pod.one(3)
    of_pod = {label.text(1): label.text(2) for label in metadata.each(11)}
    published = [] if labels is None else sorted(filter(labels.fullmatch, of_pod))
    return Pod(
        metadata.text(3),
        metadata.text(1),
        metadata.text(5),
        status.text(1) in ENDED_PHASES,
        tuple(_containers(status)),
        tuple((name, of_pod[name]) for name in published[:MOST_LABELS]),
    )


def _containers(status: Message) -> Iterator[tuple[str, str]]:
    """Yield id and name of each container that has been started."""
    for field in _STATUSES:
        for container in status.each(field):
            found = _CONTAINER_ID.fullmatch(container.text(8))
            if found is not None:
                yield found[1], container.text(1)


class NotProtobuf(Exception):
    """The bytes are no message; says why."""


class Message:
    """The fields of one message, without numbers: none that is read here is of use."""

    def __init__(self, data: bytes) -> None:
        """Raise NotProtobuf if it is no message."""
        self._fields: dict[int, list[bytes]] = {}
        at = 0
        while at < len(data):
            tag, at = varint(data, at)
            kind = tag & 7
            if kind == VARINT:
                _, at = varint(data, at)
                continue
            if kind == BYTES:
                size, at = varint(data, at)
            elif kind in _FIXED_BYTES:
                size = _FIXED_BYTES[kind]
            else:
                raise NotProtobuf(f"a field has the type {kind}")
            if size > len(data) - at:
                raise NotProtobuf("a field is cut off")
            if kind == BYTES:
                self._fields.setdefault(tag >> 3, []).append(data[at : at + size])
            at += size

    def each(self, number: int) -> Iterator[Message]:
        """Yield the messages of a repeated field."""
        return map(Message, self._fields.get(number, ()))

    def one(self, number: int) -> Message:
        """Return the message of a field, without fields if there is none."""
        return Message(b"".join(self._fields.get(number, ())))

    def texts(self, number: int) -> list[str]:
        """Return the strings of a repeated field."""
        return [value.decode("utf-8", "replace") for value in self._fields.get(number, ())]

    def text(self, number: int) -> str:
        """Return the string of a field, empty if there is none."""
        return next(reversed(self.texts(number)), "")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position behind it."""
    value = 0
    for count, byte in enumerate(data[at : at + _LONGEST_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, at + count + 1
    raise NotProtobuf("a number is cut off or too long")
