# SPDX-License-Identifier: Apache-2.0
"""The workloads on every share; computed again only when an input has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from exporter.derive.workloads import (
    OnShare,
    Pods,
    ShareKey,
    pods_of,
    with_running,
    work_of_shares,
)
from exporter.model.readers import WorkloadSource
from exporter.model.reading import SlotReport
from exporter.model.workload import NO_WORK, ShareWork, WorkloadReport
from exporter.publisher.redact import work_without_users


class NodeWork:
    """Joins what the sources of workloads say with what the driver lists on each share."""

    def __init__(self, sources: Sequence[WorkloadSource]) -> None:
        self._sources = tuple(sources)
        self._seen: tuple[object, ...] = ()
        """The reports, devices and lists of processes that the present answer is made from."""
        self._said: dict[str, WorkloadReport] = {}
        """By source: what counts of it now."""
        self._pods: Mapping[str, Pods] = {}
        self._work: dict[ShareKey, ShareWork] = {}
        self._shown: Mapping[ShareKey, ShareWork] = {}
        """The same, without users where none are to be named."""
        self.pod_labels: Mapping[str, Mapping[str, str]] = {}
        """By NAMESPACE/POD: of the pods whose work is on a share."""

    def take(self, reports: Sequence[SlotReport], *, owners: bool) -> None:
        """Take what the sources and the driver say now; without `owners` no user is named."""
        said = {one.name: report for one in self._sources if (report := one.report()) is not None}
        shares = [
            OnShare(report.reading.device, share.gpu_instance, share.processes)
            for report in reports
            if report.reading is not None
            for share in report.reading.shares
        ]
        seen: tuple[object, ...] = (*said.values(), owners, *chain.from_iterable(shares))
        if len(seen) == len(self._seen) and all(
            this is that for this, that in zip(seen, self._seen, strict=True)
        ):
            return
        self._seen = seen
        self._said = {
            name: with_running(report, self._said.get(name, report), self._pods, shares)
            for name, report in said.items()
        }
        known = [*self._said.values()]
        self._work = work_of_shares(known, shares, self._work)
        self._shown = (
            self._work
            if owners
            else {key: work_without_users(each) for key, each in self._work.items()}
        )
        self._pods = pods_of(shares, self._work)
        self.pod_labels = _labels(known, self._work.values())

    def of(self, uuid: str, gpu_instance: int | None) -> ShareWork:
        """Return whose work is on a share."""
        return self._shown.get(ShareKey(uuid, gpu_instance), NO_WORK)


def _labels(
    reports: Iterable[WorkloadReport], work: Iterable[ShareWork]
) -> Mapping[str, Mapping[str, str]]:
    here = {f"{each.namespace}/{each.pod}" for of in work for each in of.workloads}
    return {
        pod: labels
        for report in reports
        for pod, labels in report.pod_labels.items()
        if pod in here
    }
