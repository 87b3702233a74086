# SPDX-License-Identifier: Apache-2.0
"""What the kubelet's pods API says: UID, labels, containers and end of each pod of this node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from exporter.sources.workload.kubernetes.protobuf import Message

SERVICE = "v1alpha1.Pods"
"""ListPods answers with every pod; its request has no fields. The name stayed as it was when the
API became beta."""

MOST_PODS = 8192
MOST_LABELS = 64
"""Of one pod, those that are published."""
MOST_LABEL_NAME = 317
"""A prefix, a slash and 63 characters."""
MOST_LABEL_VALUE = 63
ENDED_PHASES = frozenset({"Succeeded", "Failed"})

_CONTAINER_ID = re.compile(r"[a-z0-9.+-]+://([0-9a-f]{64})")
_STATUSES = (8, 10, 13)
"""Fields with the states of containers: the usual, those before them, those to look inside."""


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


def listed_pods(answer: bytes, labels: re.Pattern[str] | None) -> tuple[Pod, ...]:
    """Return the pods that are listed, with the labels whose whole name matches.

    Args:
        answer: a ListPodsResponse.
        labels: None: no labels.

    Raises:
        Malformed: it is no such message.
    """
    pods = [_pod(pod, labels) for pod in islice(Message(answer).each(1), MOST_PODS)]
    return tuple(pod for pod in pods if pod.uid and pod.name)


def _pod(pod: Message, labels: re.Pattern[str] | None) -> Pod:
    metadata, status = pod.one(1), pod.one(3)
    published = {} if labels is None else dict(_labels(metadata, labels))
    return Pod(
        metadata.text(3),
        metadata.text(1),
        metadata.text(5),
        status.text(1) in ENDED_PHASES,
        tuple(_containers(status)),
        tuple(sorted(published.items())[:MOST_LABELS]),
    )


def _labels(metadata: Message, labels: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    for label in metadata.each(11):
        name = label.text(1, MOST_LABEL_NAME + 1)
        if len(name) <= MOST_LABEL_NAME and labels.fullmatch(name):
            yield name, label.text(2, MOST_LABEL_VALUE)


def _containers(status: Message) -> Iterator[tuple[str, str]]:
    """Yield id and name of each container that has been started."""
    for field in _STATUSES:
        for container in status.each(field):
            found = _CONTAINER_ID.fullmatch(container.text(8))
            if found is not None:
                yield found[1], container.text(1)
