# SPDX-License-Identifier: Apache-2.0
"""Readings and training reports without the owners of processes and jobs.

Sources do not look owners up where they are not wanted; a recording or a simulation brings its own.
"""

from __future__ import annotations

from dataclasses import replace

from exporter.model.reading import ShareReading, SlotReport
from exporter.model.training import TrainingReport
from exporter.model.workload import WorkloadReport


def without_owners(report: SlotReport) -> SlotReport:
    """Return the report of a GPU without the owners of its processes."""
    reading = report.reading
    if reading is None or not any(_has_owners(share) for share in reading.shares):
        return report
    shares = tuple(_anonymous(share) for share in reading.shares)
    return replace(report, reading=replace(reading, shares=shares))


def without_owner(report: TrainingReport) -> TrainingReport:
    """Return the report of a training process without the owner of its job."""
    return report if report.owner is None else replace(report, owner=None)


def without_users(report: WorkloadReport) -> WorkloadReport:
    """Return what a source of workloads says without the users of jobs."""
    return replace(
        report,
        allocations=tuple(
            replace(each, workload=replace(each.workload, user="")) for each in report.allocations
        ),
        named={name: replace(each, user="") for name, each in report.named.items()},
    )


def _has_owners(share: ShareReading) -> bool:
    return any(process.owner is not None for process in share.processes or ())


def _anonymous(share: ShareReading) -> ShareReading:
    if share.processes is None:
        return share
    return replace(
        share, processes=tuple(replace(process, owner=None) for process in share.processes)
    )
