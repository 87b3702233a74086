# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from exporter.model.reading import Board, Device, Process, Reading, ShareReading, SlotReport, Vitals
from exporter.model.training import TrainingReport, TrainingTotals
from exporter.publisher.owners import without_owner, without_owners

DEVICE = Device(0, "GPU-0", "NVIDIA H100 80GB HBM3")
OURS = Process(7, "compute", 1, "python3", "ada", "training")
NOBODYS = replace(OURS, owner=None)


def report(*shares: ShareReading) -> SlotReport:
    reading = Reading(DEVICE, 1.0, 1.0, Vitals(), Board(), shares)
    return SlotReport(0, DEVICE, reading, None, {})


def test_no_process_keeps_its_owner() -> None:
    """On any share; everything else of the report stays."""
    one = ShareReading(gpu_instance=1, processes=(OURS, NOBODYS), counters="gpm")
    two = ShareReading(gpu_instance=2, processes=None)

    assert without_owners(report(one, two)) == report(replace(one, processes=(NOBODYS,) * 2), two)


def test_a_report_without_owners_is_not_copied() -> None:
    """Sources that look no owner up hand over such reports at every tick."""
    plain = report(ShareReading(processes=(NOBODYS,)), ShareReading(processes=None))
    lost = SlotReport(0, DEVICE, None, "lost", {})

    assert without_owners(plain) is plain
    assert without_owners(lost) is lost


def test_a_training_report_keeps_all_but_its_owner() -> None:
    """The number of the user stays: it keeps two jobs of one name apart, and is not shown."""
    said = TrainingReport("a" * 32, "resnet", 0, 1.0, 1.0, TrainingTotals(), uid=1, owner="ada")

    bare = without_owner(said)

    assert bare == replace(said, owner=None)
    assert without_owner(bare) is bare
