# SPDX-License-Identifier: Apache-2.0
"""How often each Xid was seen on each GPU, in NVML events and in the kernel log."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from exporter.clock import Clock
from exporter.model.reading import SlotReport, XidRecord
from exporter.model.xids import XIDS, describe
from exporter.sources.nvml.library import Library
from exporter.sources.xids.events import XidEvents
from exporter.sources.xids.kmsg import KernelLog, KernelXid, PciAddress, pci_address

Way = Literal["nvml", "kmsg"]

PAIRING_SECONDS = 5.0
"""Within this time two reports of an Xid, one of each way, are of the same error."""
MOST_UNPAIRED = 1024
LOG_INTERVAL_SECONDS = 60.0
WAIT_SECONDS = 1.5
"""A little longer than one wait for events."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Tally:
    count: int = 0
    last_timestamp_seconds: float = 0.0
    way: Way = "nvml"
    """The way that made the unpaired reports; never both ways have some."""
    unpaired: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_UNPAIRED))
    logged_at: float = float("-inf")
    unlogged: int = 0


class XidLedger:
    """Counts Xids by UUID and code; any thread may call it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._gpus: dict[str, dict[int, _Tally]] = {}
        self._records: Mapping[str, Mapping[int, XidRecord]] | None = {}

    def note(self, uuid: str, code: int, way: Way) -> None:
        """Count and log one report, unless the other way has reported the same Xid before."""
        with self._lock:
            tally = self._gpus.setdefault(uuid, {}).setdefault(code, _Tally())
            now = self._clock.monotonic()
            if self._is_counterpart(tally, way, now):
                return
            tally.count += 1
            tally.last_timestamp_seconds = self._clock.time()
            self._records = None
            if now - tally.logged_at < LOG_INTERVAL_SECONDS:
                tally.unlogged += 1
                return
            unlogged, tally.unlogged, tally.logged_at = tally.unlogged, 0, now
        xid = XIDS.get(code)
        more = f" ({unlogged} more since the last such line)" if unlogged else ""
        level = logging.WARNING if xid is not None and xid.tier else logging.INFO
        log.log(level, "GPU %s: Xid %d%s: %s", uuid, code, more, describe(code))

    def _is_counterpart(self, tally: _Tally, way: Way, now: float) -> bool:
        unpaired = tally.unpaired
        while unpaired and now - unpaired[0] > PAIRING_SECONDS:
            unpaired.popleft()
        if unpaired and tally.way != way:
            unpaired.popleft()
            return True
        tally.way = way
        unpaired.append(now)
        return False

    def records(self) -> Mapping[str, Mapping[int, XidRecord]]:
        """Return the counts so far, by UUID and code; the result does not change later."""
        with self._lock:
            if self._records is None:
                self._records = {
                    uuid: {
                        code: XidRecord(tally.count, tally.last_timestamp_seconds)
                        for code, tally in sorted(tallies.items())
                    }
                    for uuid, tallies in self._gpus.items()
                }
            return self._records


class XidWatch:
    """Owns the ledger, and the two threads that find Xids."""

    def __init__(self, library: Library, clock: Clock, kernel_log: str | None) -> None:
        """Take the path of the kernel log, or None not to read it."""
        self._library = library
        self._clock = clock
        self.ledger = XidLedger(clock)
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
        note = partial(self.ledger.note, way="nvml")
        events = XidEvents(self._library, lambda: self._readable, note, self._clock)
        events.thread.start()
        self._events = events

    def driver_ended(self, wait_seconds: float = WAIT_SECONDS) -> bool:
        """End the wait for events; return whether no thread is left inside the driver."""
        events, self._events = self._events, None
        if events is not None:
            events.stop()
            events.thread.join(wait_seconds)
            self._left_behind.append(events)
        self._left_behind = [events for events in self._left_behind if events.thread.is_alive()]
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
            self.ledger.note(uuid, xid.code, "kmsg")
