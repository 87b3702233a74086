# SPDX-License-Identifier: Apache-2.0
"""Readings and reports without owners of processes and jobs, and without serial numbers of GPUs.

Sources do not look owners up where they are not wanted; a recording or a simulation brings its own.
"""

from __future__ import annotations

from dataclasses import replace

from exporter.model.reading import Device, ShareReading, SlotReport
from exporter.model.training import TrainingReport
from exporter.model.workload import ShareWork, Workload, WorkloadReport


def without_owners(report: SlotReport) -> SlotReport:
    """Return the report of a GPU without the owners of its processes."""
    reading = report.reading
    if reading is None or not any(
        process.owner is not None for share in reading.shares for process in share.processes or ()
    ):
        return report
    shares = tuple(_without_owners(share) for share in reading.shares)
    return replace(report, reading=replace(reading, shares=shares))


def _without_owners(share: ShareReading) -> ShareReading:
    if share.processes is None:
        return share
    processes = tuple(replace(process, owner=None) for process in share.processes)
    return replace(share, processes=processes)


def without_owner(report: TrainingReport) -> TrainingReport:
    """Return the report of a training process without the owner of its job."""
    return report if report.owner is None else replace(report, owner=None)


def without_users(report: WorkloadReport) -> WorkloadReport:
    """Return what a source of workloads says without the users of jobs."""
    return replace(
        report,
        allocations=tuple(
            replace(each, workload=_without_user(each.workload)) for each in report.allocations
        ),
        named={name: _without_user(each) for name, each in report.named.items()},
    )


def work_without_users(work: ShareWork) -> ShareWork:
    """Return whose work is on a share without the users; what differs by them alone is one."""
    return replace(
        work,
        workloads=tuple(dict.fromkeys(map(_without_user, work.workloads))),
        of_process={pid: _without_user(workload) for pid, workload in work.of_process.items()},
    )


def _without_user(workload: Workload) -> Workload:
    return replace(workload, user="")


class WithoutSerials:
    """Takes the serial number off the reports on GPUs.

    Of a device that is the same object as before, what is returned is the same object too, so that
    nothing is rendered anew.
    """

    def __init__(self) -> None:
        self._devices: dict[int, tuple[Device, Device]] = {}
        """By the report's index: the last device, and the same without its number."""

    def report(self, report: SlotReport) -> SlotReport:
        """Return the report of a GPU without its serial number."""
        device, reading = report.device, report.reading
        if reading is not None:
            reading = replace(reading, device=self._without(report.index, reading.device))
        if device is not None:
            device = self._without(report.index, device)
        return replace(report, device=device, reading=reading)

    def _without(self, index: int, device: Device) -> Device:
        known = self._devices.get(index)
        if known is None or known[0] is not device:
            known = self._devices[index] = (device, replace(device, serial=None))
        return known[1]
