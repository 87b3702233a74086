# SPDX-License-Identifier: Apache-2.0
"""Who has which GPU now: the devices of containers without those of pods that have ended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.model.workload import Allocation, Workload
from exporter.sources.workload.kubernetes.devices import SHARED_RESOURCE, is_elsewhere, named
from exporter.sources.workload.kubernetes.pod_resources import Held
from exporter.sources.workload.kubernetes.pods import Pod

PodName = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Given:
    """What is given away."""

    allocations: tuple[Allocation, ...]
    unknown: tuple[str, ...]
    """Ids of devices of which it is not known which GPUs they are."""


def going_on(held: Iterable[Held], pods: Mapping[PodName, Pod]) -> tuple[Held, ...]:
    """Return the devices without those of pods that are known to have ended."""
    ended = {name for name, pod in pods.items() if pod.ended}
    return tuple(each for each in held if (each.namespace, each.pod) not in ended)


def given(
    held: Iterable[Held], pods: Mapping[PodName, Pod], watchers: Iterable[re.Pattern[str]]
) -> Given:
    """Return who has which GPU.

    Args:
        held: the devices of all containers.
        pods: what is known of their pods.
        watchers: NAMESPACE/POD of pods that only watch the GPUs they are given.
    """
    allocations: dict[Allocation, None] = {}
    unknown: dict[str, None] = {}
    patterns = tuple(watchers)
    for each in held:
        if is_elsewhere(each) or _watches(each, patterns):
            continue
        found = named(each)
        if found is None:
            unknown[each.device] = None
            continue
        pod = pods.get((each.namespace, each.pod))
        uid = "" if pod is None else pod.uid
        workload = Workload("kubernetes", each.namespace, each.pod, each.container, id=uid)
        allocations[Allocation(found.device, workload, found.replica, each.claim)] = None
    return Given(tuple(allocations), tuple(unknown))


def _watches(held: Held, patterns: Sequence[re.Pattern[str]]) -> bool:
    name = f"{held.namespace}/{held.pod}"
    return any(pattern.fullmatch(name) for pattern in patterns)


class Successions:
    """Which of several pods has a device that only one can have: the one that was seen last.

    A kubelet before 1.34 may list a pod that has ended beside the one that has its GPU now. Those
    that were there at the first look cannot be told apart: then all of them have it.
    """

    def __init__(self) -> None:
        self._round = 0
        self._since: dict[str, dict[PodName, int]] = {}
        """By device: the pods that have it, and the round in which each was first seen with it."""

    def present(self, held: Sequence[Held]) -> tuple[Held, ...]:
        """Return what is listed now without what an earlier pod is still listed with."""
        self._round += 1
        since: dict[str, dict[PodName, int]] = {}
        for each in held:
            if _exclusive(each):
                before = self._since.get(each.device, {})
                pod = (each.namespace, each.pod)
                since.setdefault(each.device, {})[pod] = before.get(pod, self._round)
        self._since = since
        latest = {device: max(pods.values()) for device, pods in since.items()}
        return tuple(
            each
            for each in held
            if not _exclusive(each)
            or since[each.device][each.namespace, each.pod] == latest[each.device]
        )


def _exclusive(held: Held) -> bool:
    shared = "::" in held.device or "/vgpu" in held.device or held.resource == SHARED_RESOURCE
    return not held.claim and not shared
