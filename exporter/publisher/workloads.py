# SPDX-License-Identifier: Apache-2.0
"""The workloads on every share, recomputed only when an input changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from exporter.derive.workloads import OnShare, Pods, pod_name, pods_of, with_running, work_of_shares
from exporter.model.readers import WorkloadSource
from exporter.model.reading import Place, SlotReport
from exporter.model.workload import NO_WORK, ShareWork, WorkloadReport
from exporter.publisher.redact import work_without_users


class NodeWork:
    """Joins the reports of workload sources with the processes that the driver lists."""

    def __init__(self, sources: Sequence[WorkloadSource]) -> None:
        self._sources = tuple(sources)
        self._seen: tuple[object, ...] = ()
        """The reports, devices and process lists of the last computation."""
        self._reports: dict[str, WorkloadReport] = {}
        """By source: its last report, completed by the one before for pods that still run."""
        self._pods: Mapping[str, Pods] = {}
        self._work: dict[Place, ShareWork] = {}
        self._shown: Mapping[Place, ShareWork] = {}
        """`_work` as published, without users with --no-process.owner."""
        self.pod_labels: Mapping[str, Mapping[str, str]] = {}
        """By NAMESPACE/POD: the labels of pods with work on a share."""

    def take(self, reports: Sequence[SlotReport], *, owners: bool) -> None:
        """Take the latest reports of sources and driver; without `owners`, hide users."""
        latest = {one.name: report for one in self._sources if (report := one.report()) is not None}
        shares = [
            OnShare(report.reading.device, share.gpu_instance, share.processes)
            for report in reports
            if report.reading is not None
            for share in report.reading.shares
        ]
        seen: tuple[object, ...] = (*latest.values(), owners, *chain.from_iterable(shares))
        if len(seen) == len(self._seen) and all(
            this is that for this, that in zip(seen, self._seen, strict=True)
        ):
            return
        self._seen = seen
        self._reports = {
            name: with_running(report, self._reports.get(name, report), self._pods, shares)
            for name, report in latest.items()
        }
        known = [*self._reports.values()]
        work = self._work = work_of_shares(known, shares, self._work)
        self._shown = work
        if not owners:
            self._shown = {key: work_without_users(each) for key, each in work.items()}
        self._pods = pods_of(shares, work)
        here = {pod_name(each) for of in work.values() for each in of.workloads}
        self.pod_labels = {
            pod: labels
            for report in known
            for pod, labels in report.pod_labels.items()
            if pod in here
        }

    def of(self, uuid: str | None, gpu_instance: int | None) -> ShareWork:
        """Return the work on a share."""
        return self._shown.get(Place(uuid, gpu_instance), NO_WORK)
