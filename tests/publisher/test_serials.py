# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from exporter.model.reading import Board, Device, Reading, SlotReport, Vitals
from exporter.publisher.serials import WithoutSerials

DEVICE = Device(0, "GPU-0", "NVIDIA H100 80GB HBM3", serial="1650", board_part_number="900-21")
BARE = replace(DEVICE, serial=None)


def reading(device: Device) -> Reading:
    return Reading(device, 1.0, 1.0, Vitals(), Board(), ())


def test_no_report_keeps_a_serial_number() -> None:
    """Of a GPU that answers, of one that is lost, and of one never seen; all else stays."""
    without = WithoutSerials()

    answers = without.report(SlotReport(0, DEVICE, reading(DEVICE), None, {}))
    lost = without.report(SlotReport(1, DEVICE, None, "lost", {"nvml": 1}))
    unknown = without.report(SlotReport(2, None, None, "lost", {}))

    assert answers == SlotReport(0, BARE, reading(BARE), None, {})
    assert lost == SlotReport(1, BARE, None, "lost", {"nvml": 1})
    assert unknown == SlotReport(2, None, None, "lost", {})


def test_what_did_not_change_stays_the_same_object() -> None:
    """So that what was rendered of it is not rendered again; a new device is a new object."""
    without = WithoutSerials()
    first = without.report(SlotReport(0, DEVICE, reading(DEVICE), None, {}))
    again = without.report(SlotReport(0, DEVICE, reading(DEVICE), None, {}))
    other = without.report(SlotReport(0, None, reading(replace(DEVICE, mig=True)), None, {}))

    assert first.device is again.device
    assert first.reading is not None
    assert again.reading is not None
    assert first.reading.device is again.reading.device is first.device
    assert other.reading is not None
    assert other.reading.device == replace(BARE, mig=True)
