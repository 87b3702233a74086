# SPDX-License-Identifier: Apache-2.0
"""What the kubelet's pods API says: UID, labels, containers and end of each pod of this node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from exporter.sources.workload.kubernetes.pod_resources import MOST_NAME
from exporter.sources.workload.kubernetes.protobuf import Budget, fields, nested, text

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
_STATUSES = frozenset({8, 10, 13})
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
    budget = Budget()
    pods: list[Pod] = []
    for number, value in fields(memoryview(answer), budget):
        if number == 1 and len(pods) < MOST_PODS:
            pods.append(_pod(nested(value), labels, budget))
    return tuple(pod for pod in pods if pod.uid and pod.name)


def _pod(message: memoryview, labels: re.Pattern[str] | None, budget: Budget) -> Pod:
    name = namespace = uid = ""
    published: dict[str, str] = {}
    ended = False
    containers: list[tuple[str, str]] = []
    for number, value in fields(message, budget):
        if number == 1:
            for inner, item in fields(nested(value), budget):
                if inner == 1:
                    name = text(item, MOST_NAME)
                elif inner == 3:
                    namespace = text(item, MOST_NAME)
                elif inner == 5:
                    uid = text(item, MOST_NAME)
                elif inner == 11 and labels is not None:
                    published.update(_label(nested(item), labels, budget))
        elif number == 3:
            for inner, item in fields(nested(value), budget):
                if inner == 1:
                    ended = text(item, MOST_NAME) in ENDED_PHASES
                elif inner in _STATUSES:
                    containers += _container(nested(item), budget)
    return Pod(
        namespace,
        name,
        uid,
        ended,
        tuple(containers),
        tuple(sorted(published.items())[:MOST_LABELS]),
    )


def _label(message: memoryview, labels: re.Pattern[str], budget: Budget) -> Mapping[str, str]:
    name = value = ""
    for number, item in fields(message, budget):
        if number == 1:
            name = text(item, MOST_LABEL_NAME + 1)
        elif number == 2:
            value = text(item, MOST_LABEL_VALUE)
    known = len(name) <= MOST_LABEL_NAME and labels.fullmatch(name) is not None
    return {name: value} if known else {}


def _container(message: memoryview, budget: Budget) -> list[tuple[str, str]]:
    """Return id and name of a container, if it has been started."""
    name = given = ""
    for number, item in fields(message, budget):
        if number == 1:
            name = text(item, MOST_NAME)
        elif number == 8:
            given = text(item, MOST_NAME)
    found = _CONTAINER_ID.fullmatch(given)
    return [] if found is None else [(found[1], name)]
