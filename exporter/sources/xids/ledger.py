# SPDX-License-Identifier: Apache-2.0
"""How often each Xid was seen on each GPU; one that both ways report is counted once."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.clock import Clock
from exporter.model.reading import XidRecord
from exporter.model.xids import XIDS, describe

Way = Literal["nvml", "kmsg"]

PAIRING_SECONDS = 5.0
"""Within this time two reports of an Xid, one of each way, are of the same error."""
MOST_UNPAIRED = 1024
LOG_INTERVAL_SECONDS = 60.0

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
