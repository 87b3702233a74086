# SPDX-License-Identifier: Apache-2.0
"""What is served and recorded without owners and serial numbers."""

from __future__ import annotations

from dataclasses import replace

from exporter.model.reading import Board, Device, Process, Reading, ShareReading, SlotReport, Vitals
from exporter.model.workload import ShareWork, Workload
from exporter.publisher.redact import WithoutSerials, without_owners, work_without_users
from tests.derive.readings import known

DEVICE = Device(0, "GPU-0", "NVIDIA H100 80GB HBM3")
JOB = Workload("slurm", job="4711", user="ada")
NAMELESS = replace(JOB, user="")
NUMBERED = replace(DEVICE, serial="1650")
OURS = Process(7, "compute", 1, "python3", "ada", "training")
NOBODYS = replace(OURS, owner=None)


def reading_of(device: Device, *shares: ShareReading) -> Reading:
    return Reading(device, 1.0, 1.0, Vitals(), Board(), shares)


def report(*shares: ShareReading) -> SlotReport:
    return SlotReport(0, DEVICE, reading_of(DEVICE, *shares), None, {})


def test_no_process_keeps_its_owner() -> None:
    """On any share; everything else of the report stays."""
    one = ShareReading(gpu_instance=1, processes=(OURS, NOBODYS), counters="gpm")
    two = ShareReading(gpu_instance=2, processes=None)

    assert without_owners(report(one, two)) == report(replace(one, processes=(NOBODYS,) * 2), two)


def test_no_report_keeps_a_serial_number() -> None:
    """Of a GPU that answers, of one that is lost, and of one never seen; all else stays."""
    without = WithoutSerials()

    answers = without.report(SlotReport(0, NUMBERED, reading_of(NUMBERED), None, {}))
    lost = without.report(SlotReport(1, NUMBERED, None, "lost", {"nvml": 1}))
    unknown = without.report(SlotReport(2, None, None, "lost", {}))

    assert answers == SlotReport(0, DEVICE, reading_of(DEVICE), None, {})
    assert lost == SlotReport(1, DEVICE, None, "lost", {"nvml": 1})
    assert unknown == SlotReport(2, None, None, "lost", {})


def test_what_did_not_change_stays_the_same_object() -> None:
    """So that what was rendered of it is not rendered again; a new device is a new object."""
    without = WithoutSerials()
    first = without.report(SlotReport(0, NUMBERED, reading_of(NUMBERED), None, {}))
    again = without.report(SlotReport(0, NUMBERED, reading_of(NUMBERED), None, {}))
    other = without.report(SlotReport(0, None, reading_of(replace(NUMBERED, mig=True)), None, {}))

    assert first.device is again.device
    assert known(first.reading).device is known(again.reading).device is first.device
    assert known(other.reading).device == replace(DEVICE, mig=True)


def test_jobs_that_differ_by_their_users_alone_are_one() -> None:
    work = ShareWork((JOB, replace(JOB, user="bob")), of_process={7: JOB})
    assert work_without_users(work) == ShareWork((NAMELESS,), of_process={7: NAMELESS})
