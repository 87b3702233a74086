# SPDX-License-Identifier: Apache-2.0
"""Counts rejected reports by reason, and logs them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from exporter.clock import Clock
from exporter.errors import one_line
from exporter.model.training import TRAINING_QUOTAS, TRAINING_REJECTIONS, TRAINING_SENDERS
from exporter.sources.training.credentials import Peer, sender_class

LOG_INTERVAL_SECONDS = 60.0
MOST_CHARACTERS = 200
"""The longest message that quotes a report."""

log = logging.getLogger(__name__)


class Rejected(Exception):
    """A report is rejected, for one of ``TRAINING_REJECTIONS``."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or TRAINING_REJECTIONS[reason])
        self.reason = reason


class Refusals:
    """Counts by reason and logs each reason at most once a minute; any thread may read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(TRAINING_REJECTIONS, 0)
        self._quota_hits = dict.fromkeys(TRAINING_SENDERS, 0)
        self._logged: dict[str, tuple[float, int]] = {}
        """By reason: when a line was last written, and the count at that time."""

    def note(self, rejected: Rejected, peer: Peer | None) -> None:
        """Count a rejected report; the message may quote it, `peer` is its sender, if known."""
        reason, now = rejected.reason, self._clock.monotonic()
        with self._lock:
            count = self._counts[reason] = self._counts[reason] + 1
            if reason in TRAINING_QUOTAS:
                self._quota_hits[sender_class(peer)] += 1
            logged_at, logged = self._logged.get(reason, (float("-inf"), 0))
            if now - logged_at < LOG_INTERVAL_SECONDS:
                return
            self._logged[reason] = (now, count)
        unlogged = count - logged - 1
        log.warning(
            "training report from %s refused (%s): %s%s",
            "an unknown process" if peer is None else peer,
            reason,
            one_line(str(rejected)[:MOST_CHARACTERS]),
            f" ({unlogged} more for that reason since the last such line)" if unlogged else "",
        )

    def counts(self) -> Mapping[str, int]:
        """Return how many reports were rejected, by reason."""
        with self._lock:
            return dict(self._counts)

    def quota_hits(self) -> Mapping[str, int]:
        """Return how many reports exceeded a limit, by class of sender."""
        with self._lock:
            return dict(self._quota_hits)
