# SPDX-License-Identifier: Apache-2.0
"""Readings without the serial numbers of GPUs, for all that is served and for recordings."""

from __future__ import annotations

from dataclasses import replace

from exporter.model.reading import Device, SlotReport


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
            reading = replace(reading, device=self._bare(report.index, reading.device))
        if device is not None:
            device = self._bare(report.index, device)
        return replace(report, device=device, reading=reading)

    def _bare(self, index: int, device: Device) -> Device:
        known = self._devices.get(index)
        if known is None or known[0] is not device:
            known = self._devices[index] = (device, replace(device, serial=None))
        return known[1]
