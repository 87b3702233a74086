# SPDX-License-Identifier: Apache-2.0
"""Removes owners of processes and jobs, and serial numbers of GPUs, from readings and reports.

Sources look up no owners with --no-process.owner, but recordings and simulations contain some.
"""

from __future__ import annotations

from dataclasses import replace

from exporter.model.reading import Device, SlotReport
from exporter.model.workload import ShareWork, Workload, WorkloadReport


def without_owners(report: SlotReport) -> SlotReport:
    """Return the report of a GPU without the owners of its processes."""
    reading = report.reading
    if reading is None or not any(
        process.owner is not None for share in reading.shares for process in share.processes or ()
    ):
        return report
    shares = tuple(
        replace(share, processes=tuple(replace(each, owner=None) for each in share.processes))
        if share.processes is not None
        else share
        for share in reading.shares
    )
    return replace(report, reading=replace(reading, shares=shares))


def without_users(report: WorkloadReport) -> WorkloadReport:
    """Return the report of a workload source without the users of jobs."""
    return replace(
        report,
        allocations=tuple(
            replace(each, workload=_without_user(each.workload)) for each in report.allocations
        ),
        named={name: _without_user(each) for name, each in report.named.items()},
    )


def work_without_users(work: ShareWork) -> ShareWork:
    """Return the work on a share without users; workloads that become equal are merged."""
    return replace(
        work,
        workloads=tuple(dict.fromkeys(map(_without_user, work.workloads))),
        of_process={pid: _without_user(workload) for pid, workload in work.of_process.items()},
    )


def _without_user(workload: Workload) -> Workload:
    return replace(workload, user="")


class WithoutSerials:
    """Removes serial numbers; the same device stays the same object, so that lines are reused."""

    def __init__(self) -> None:
        self._devices: dict[int, tuple[Device, Device]] = {}
        """By index: the last device, and its copy without the serial number."""

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
