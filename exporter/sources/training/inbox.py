# SPDX-License-Identifier: Apache-2.0
"""Datagrams that have arrived and wait to be read, many in one go.

Waking up for each report to read it at once costs several times as much as reading many in a row:
in between, the jobs' own work drives the reader out of the processor's caches.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from exporter.clock import Clock
from exporter.sources.training.credentials import Peer, peer_of
from exporter.sources.training.rate import RateLimit
from exporter.sources.training.refusals import LOG_INTERVAL_SECONDS, Refusals, Refused

MOST_WAITING = 256

log = logging.getLogger(__name__)

Ancillary = Sequence[tuple[int, int, bytes]]
"""What the kernel attached to a datagram."""


class Arrival(NamedTuple):
    """One datagram, who sent it and when it was received."""

    data: bytes
    peer: Peer
    monotonic_seconds: float
    timestamp_seconds: float


class Inbox:
    """Keeps the order of arrival; any thread may put and read."""

    def __init__(self, take: Callable[[Arrival], None], refusals: Refusals, clock: Clock) -> None:
        """Call `take` for each datagram that is read; it may raise Refused."""
        self._take = take
        self._refusals = refusals
        self._clock = clock
        self._rate = RateLimit()
        self._waiting: deque[tuple[bytes, Ancillary, float]] = deque()
        self._reading = threading.Lock()
        self._fault_logged_at = float("-inf")

    def put(self, data: bytes, ancillary: Ancillary, monotonic_seconds: float) -> bool:
        """Keep a datagram for the next read; return whether so many wait that it is due now."""
        self._waiting.append((data, ancillary, monotonic_seconds))
        return len(self._waiting) >= MOST_WAITING

    def read(self) -> int:
        """Take or refuse what has arrived; return how many the rate limit refused."""
        too_many = 0
        with self._reading:
            ahead = self._clock.time() - self._clock.monotonic()
            for _ in range(len(self._waiting)):  # what arrives meanwhile waits for the next read
                data, ancillary, now = self._waiting.popleft()
                peer = peer_of(ancillary)
                if peer is None:
                    self._refuse(Refused("credentials"), None)
                elif not self._rate.allows(peer, len(data), now):
                    self._refuse(Refused("rate"), peer)
                    too_many += 1
                else:
                    self._read_one(Arrival(data, peer, now, now + ahead))
        return too_many

    def _read_one(self, arrival: Arrival) -> None:
        try:
            self._take(arrival)
        except Refused as refused:
            self._refuse(refused, arrival.peer)
        except Exception:
            # A mistake of ours must not let a sender switch the source off, or fill the log.
            self._refuse(Refused("schema", "it could not be understood"), arrival.peer)
            now = arrival.monotonic_seconds
            if now - self._fault_logged_at >= LOG_INTERVAL_SECONDS:
                self._fault_logged_at = now
                log.exception("a training report from %s could not be understood", arrival.peer)

    def _refuse(self, refused: Refused, peer: Peer | None) -> None:
        self._refusals.note(refused.reason, str(refused), peer)
