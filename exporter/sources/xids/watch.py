# SPDX-License-Identifier: Apache-2.0
"""The Xids of all GPUs, from NVML events and the kernel log, in one ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from exporter.clock import Clock
from exporter.model.reading import SlotReport, XidRecord
from exporter.sources.nvml.library import Library
from exporter.sources.xids.events import XidEvents
from exporter.sources.xids.kmsg import KernelLog, KernelXid, PciAddress, pci_address
from exporter.sources.xids.ledger import XidLedger

WAIT_SECONDS = 1.5
"""A little longer than one wait for events."""


class XidWatch:
    """Owns the ledger, and the two threads that find Xids."""

    def __init__(self, library: Library, clock: Clock, kernel_log: str | None) -> None:
        """Take the path of the kernel log, or None not to read it."""
        self._library = library
        self._clock = clock
        self._ledger = XidLedger(clock)
        self._events: XidEvents | None = None
        self._left_behind: list[XidEvents] = []
        """Threads that were inside a driver call when their generation ended."""
        self._kernel_log = None if kernel_log is None else KernelLog(kernel_log, self._note_logged)
        self._readable: Mapping[int, str] = {}
        self._places: dict[PciAddress, str] = {}
        """The UUID of every GPU that has been seen, by PCI address."""

    def start(self) -> None:
        """Start following the kernel log."""
        if self._kernel_log is not None:
            self._kernel_log.start()

    def driver_started(self) -> None:
        """Start to wait for events of the present library generation, if not done before."""
        if self._events is not None:
            return
        events = XidEvents(
            self._library,
            lambda: self._readable,
            lambda uuid, code: self._ledger.note(uuid, code, "nvml"),
            self._clock,
        )
        events.start()
        self._events = events

    def driver_ended(self, wait_seconds: float = WAIT_SECONDS) -> bool:
        """End the wait for events; return whether no thread is left inside the driver."""
        events, self._events = self._events, None
        if events is not None:
            events.stop()
            events.join(wait_seconds)
            self._left_behind.append(events)
        self._left_behind = [events for events in self._left_behind if events.is_alive()]
        return not self._left_behind

    def stop(self) -> None:
        """End both threads; one that is inside a driver call is not waited for."""
        if self._kernel_log is not None:
            self._kernel_log.stop()
        self.driver_ended(wait_seconds=0.0)

    def update(self, reports: Iterable[SlotReport]) -> None:
        """Note the PCI addresses of all GPUs, and which of them can be read now."""
        readable: dict[int, str] = {}
        for report in reports:
            device = report.device
            if device is None:
                continue
            if report.reading is not None:
                readable[report.reading.device.index] = device.uuid
            address = pci_address(device.pci_bus_id or "")
            if address is not None:
                self._places[address] = device.uuid
        self._readable = readable

    def _note_logged(self, xid: KernelXid) -> None:
        uuid = self._places.get(xid.address)
        if uuid is not None:  # else that GPU was never read
            self._ledger.note(uuid, xid.code, "kmsg")

    def records(self) -> Mapping[str, Mapping[int, XidRecord]]:
        """Return the Xids seen so far, by UUID and code."""
        return self._ledger.records()
