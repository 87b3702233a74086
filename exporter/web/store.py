# SPDX-License-Identifier: Apache-2.0
"""The latest snapshot and the history: one writer, many readers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from exporter.model.snapshot import RECENT_SECONDS, Rank, Snapshot
from exporter.web.history import History

_SPACING_SECONDS = 1.0


class Published(NamedTuple):
    """A snapshot, and which one it is."""

    snapshot: Snapshot
    sequence: int
    """Counted from 1."""
    monotonic_seconds: float


class Store:
    """The latest snapshot; it is immutable and replaced whole, so readers need no lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.history = History()
        self._clock = clock
        self._began = clock()
        self._latest: Published | None = None
        self._recent: tuple[tuple[float, tuple[Rank, ...]], ...] = ()

    def publish(self, snapshot: Snapshot) -> None:
        """Make this snapshot the latest."""
        latest = self._latest
        self._keep_ranks(snapshot)
        self._latest = Published(
            snapshot, 1 if latest is None else latest.sequence + 1, self._clock()
        )
        self.history.add(snapshot)

    def latest(self) -> Snapshot | None:
        """Return the latest snapshot, or None before the first."""
        latest = self._latest
        return None if latest is None else latest.snapshot

    def published(self) -> Published | None:
        """Return the latest snapshot with its number, or None before the first."""
        return self._latest

    def age_seconds(self) -> float | None:
        """Return how long ago the latest snapshot was published, by a clock that never steps."""
        latest = self._latest
        return None if latest is None else self._clock() - latest.monotonic_seconds

    def silent_seconds(self) -> float:
        """Return how long nothing was published, from the start on before the first snapshot."""
        latest = self._latest
        return self._clock() - (self._began if latest is None else latest.monotonic_seconds)

    def earlier_ranks(self) -> Iterator[Rank]:
        """Yield the training ranks of the last 10 seconds, the newest first."""
        for _, ranks in reversed(self._recent):
            yield from ranks

    def _keep_ranks(self, snapshot: Snapshot) -> None:
        now, kept = snapshot.timestamp_seconds, self._recent
        if not snapshot.ranks:
            self._recent = ()
            return
        if kept and 0 <= now - kept[-1][0] < _SPACING_SECONDS / 2:
            return
        if kept and now < kept[-1][0]:  # the clock was set back
            kept = ()
        while len(kept) > 1 and now - kept[1][0] >= RECENT_SECONDS:
            kept = kept[1:]
        self._recent = (*kept, (now, snapshot.ranks))
