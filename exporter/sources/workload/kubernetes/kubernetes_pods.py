# SPDX-License-Identifier: Apache-2.0
"""The source kubernetes: lists devices and pods of the kubelet."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace

from exporter.clock import Clock
from exporter.model.workload import Workload, WorkloadReport
from exporter.sources.interface import KUBERNETES, NodeWorkloads, WorkloadOptions
from exporter.sources.poller import Busy, PolledSource, Unreadable
from exporter.sources.workload.kubernetes.allocations import (
    PodName,
    Successions,
    allocations_of,
    gpu_resources,
    without_ended,
)
from exporter.sources.workload.kubernetes.kubelet_api import (
    LIST,
    LIST_PODS,
    NotProtobuf,
    Pod,
    listed_devices,
    listed_pods,
)
from exporter.sources.workload.kubernetes.unary import CallFailed, Code, call

MOST_SHOWN = 3
"""Ids in a line of the log."""

log = logging.getLogger(__name__)


class Kubelet:
    """The two APIs of the kubelet. That of pods completes that of devices, and may fail alone."""

    def __init__(self, options: WorkloadOptions, environment: Mapping[str, str]) -> None:
        self._options = options
        self._is_gpu = gpu_resources(options.kubernetes_resources)
        self._own, ignored = own_pod(environment), options.kubernetes_ignore_pods
        self._watchers = [pattern for pattern in (self._own, ignored) if pattern is not None]
        self._was_listed = False
        """Whether a List had this pod itself: then one without it is of a kubelet without pods."""
        self._successions = Successions()
        self._pods: tuple[Pod, ...] = ()
        """As they were listed last."""
        self._pods_problem: str | None = None
        self._unknown: tuple[str, ...] = ()

    def read(self) -> WorkloadReport | None:
        """Return what the kubelet reports; None where there is none.

        Raises:
            Unreadable: it does not answer, or not understandably.
        """
        try:
            answer = call(self._options.kubernetes_socket, LIST)
            if answer is None:
                return None
            names, devices = listed_devices(answer, self._is_gpu)
        except CallFailed as error:
            raise (Busy if error.code == Code.RESOURCE_EXHAUSTED else Unreadable)(
                str(error)
            ) from error
        except NotProtobuf as error:
            raise Unreadable(f"the answer of List cannot be read: {error}") from error
        listed_itself = self._own is not None and any(map(self._own.fullmatch, names))
        if self._was_listed and not listed_itself:
            raise Unreadable("it has started and does not know its pods yet: this one is missing")
        self._was_listed = listed_itself
        listed, fresh = self._listed()
        by_name = _by_name(listed, judged=fresh)
        # First those that ended: one that came last and failed has nothing that it could take over.
        present = self._successions.present(without_ended(devices, by_name))
        allocations, unknown = allocations_of(present, by_name, self._watchers)
        self._log_unknown(unknown)
        return WorkloadReport(
            allocations,
            # A device that may be any GPU leaves open which of the others are free.
            allocates=not unknown,
            named=_named(listed),
            pod_labels={
                f"{pod.namespace}/{pod.name}": dict(pod.labels) for pod in listed if pod.labels
            },
        )

    def _listed(self) -> tuple[Sequence[Pod], bool]:
        """Return the pods, and whether the list is new: an old one may have ended pods."""
        problem: str | None = None
        try:
            answer = call(self._options.kubernetes_pods_socket, LIST_PODS)
            if answer is None:
                return self._pods, False
            self._pods = listed_pods(answer, self._options.kubernetes_pod_labels)
        except (CallFailed, NotProtobuf) as error:
            problem = str(error)
        if problem is not None and self._pods_problem is None:
            log.warning("source %s: the pods API cannot be read: %s", KUBERNETES, problem)
        elif problem is None and self._pods_problem is not None:
            log.info("source %s: the pods API can be read again", KUBERNETES)
        self._pods_problem = problem
        return self._pods, problem is None

    def _log_unknown(self, unknown: tuple[str, ...]) -> None:
        if unknown and unknown != self._unknown:
            log.warning(
                "source %s: it is not known which GPUs %d devices are, so neither which are free: "
                "%s%s",
                KUBERNETES,
                len(unknown),
                ", ".join(repr(each) for each in unknown[:MOST_SHOWN]),
                ", …" if len(unknown) > MOST_SHOWN else "",
            )
        self._unknown = unknown


def prepare(options: WorkloadOptions, clock: Clock) -> NodeWorkloads:
    """Return the source, not started."""
    return PolledSource(KUBERNETES, Kubelet(options, os.environ).read, clock)


def _by_name(listed: Sequence[Pod], *, judged: bool) -> dict[PodName, Pod]:
    """Return the pods by their names; of two with one name, the one that has not ended."""
    found: dict[PodName, Pod] = {}
    for pod in listed:
        key = (pod.namespace, pod.name)
        if key not in found or found[key].ended:
            found[key] = pod
    return found if judged else {key: replace(pod, ended=False) for key, pod in found.items()}


def _named(listed: Sequence[Pod]) -> dict[str, Workload]:
    """Return the names by UID of a pod, and by id of a container."""
    found: dict[str, Workload] = {}
    for pod in listed:
        of = Workload("kubernetes", pod.namespace, pod.name, id=pod.uid)
        found[pod.uid] = of
        for container_id, container in pod.containers:
            found[container_id] = replace(of, container=container)
    return found


def own_pod(environment: Mapping[str, str]) -> re.Pattern[str] | None:
    """Return a pattern of NAMESPACE/POD that is this pod; None where the daemon runs in none.

    A pod's host name is its own name, unless it shares the network of its node; POD_NAME and
    POD_NAMESPACE, which the manifest may set, come first.
    """
    if "KUBERNETES_SERVICE_HOST" not in environment:
        return None
    name = environment.get("POD_NAME") or socket.gethostname()
    namespace = re.escape(environment.get("POD_NAMESPACE", "")) or "[^/]+"
    return re.compile(f"{namespace}/{re.escape(name)}")
