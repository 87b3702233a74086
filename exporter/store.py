# SPDX-License-Identifier: Apache-2.0
"""Holds the latest snapshot: one thread writes, any thread reads."""

from __future__ import annotations

import time
from collections.abc import Callable

from exporter.snapshot import Snapshot


class Store:
    """The latest snapshot; it is immutable and replaced whole, so readers need no lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._latest: tuple[Snapshot, float] | None = None

    def publish(self, snapshot: Snapshot) -> None:
        """Make this snapshot the latest."""
        self._latest = (snapshot, self._clock())

    def latest(self) -> Snapshot | None:
        """Return the latest snapshot, or None before the first."""
        latest = self._latest
        return None if latest is None else latest[0]

    def age_seconds(self) -> float | None:
        """Return how long ago the latest snapshot was published, by a clock that never steps."""
        latest = self._latest
        return None if latest is None else self._clock() - latest[1]
