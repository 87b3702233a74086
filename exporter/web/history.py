# SPDX-License-Identifier: Apache-2.0
"""The last 15 minutes of every GPU in columns: at most one point a second, no snapshots."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from exporter.derive.waits import live_ranks
from exporter.model.reading import Instance, Place
from exporter.model.snapshot import Gpu, Snapshot
from exporter.web.columns import COLUMNS, LINKS, readings

KEPT_SECONDS = 900.0
POINTS = 900
POINT_SECONDS = 1.0
"""Of readings that come faster the newest is kept."""
SHORTEST_HOLE_SECONDS = 3.0
HOLE_INTERVALS = 3

_WIDTH = len(COLUMNS)
_UNKNOWN = float("nan")
"""An array has no None; nothing outside this module sees it."""
_NO_ROW = array("f", [_UNKNOWN]) * _WIDTH

Key = tuple[str, int | None]
"""UUID and GPU instance; without an instance the whole GPU, or its board while MIG is on."""
Columns = dict[str, list[float | None]]
Parts = tuple[Instance, ...]
"""The compute instances of a GPU instance: with others it is another one. None of a whole GPU."""


class Series(NamedTuple):
    """Points in time and what was read at each; None where nothing was."""

    timestamps: list[float]
    """Unix time, rising."""
    columns: Columns
    """Those in which anything is known, in the order of `COLUMNS`."""


def _column(values: array[float], name: str) -> list[float | None]:
    points = values[COLUMNS.index(name) :: _WIDTH]
    return [value if value == value else None for value in points]


def _row(found: Mapping[str, float]) -> array[float]:
    return array("f", [found.get(name, _UNKNOWN) for name in COLUMNS])


def _parts(snapshot: Snapshot) -> dict[Key, Parts]:
    return {
        (gpu.device.uuid, share.gpu_instance): tuple(
            each for each in gpu.device.instances if each.gpu_instance == share.gpu_instance
        )
        for gpu in snapshot.gpus
        if gpu.up and gpu.device.mig
        for share in gpu.shares
    }


class _Ring:
    """The points of one share, row after row; the history knows where each of them lies."""

    def __init__(self, points: int, now: float, parts: Parts) -> None:
        self.values = _NO_ROW * points
        self.parts = parts
        self.known_at = now
        """When anything was last known."""

    def put(self, at: int, row: array[float]) -> None:
        """Replace a point."""
        self.values[at * _WIDTH : (at + 1) * _WIDTH] = row


class History:
    """A ring for each share, all with the same points in time. One thread adds; any reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rings: dict[Key, _Ring] = {}
        self._times = array("d")
        self._count = 0
        """Points in use; the newest is at `_at`."""
        self._at = -1
        self._started = 0.0
        """When the newest point began."""
        self._last = 0.0
        self._gap = POINT_SECONDS
        """Between the last two readings."""
        self._link_totals: dict[str, tuple[float, Mapping[str, float | None]]] = {}
        """By GPU: when they were read, and what was moved by then."""

    def add(self, snapshot: Snapshot) -> None:
        """Take a snapshot."""
        now = snapshot.timestamp_seconds
        found = self._values(snapshot)
        parts = _parts(snapshot)
        with self._lock:
            for key, present in parts.items():
                if key in self._rings and self._rings[key].parts != present:
                    del self._rings[key]
            is_new_point = self._advance(now)
            for key in found:
                if key not in self._rings:
                    self._rings[key] = _Ring(len(self._times), now, parts.get(key, ()))
            for key, ring in self._rings.items():
                if key in found:
                    ring.known_at = now
                    ring.put(self._at, _row(found[key]))
                elif is_new_point:
                    ring.put(self._at, _NO_ROW)
            for key in [
                key for key, ring in self._rings.items() if now - ring.known_at > KEPT_SECONDS
            ]:
                del self._rings[key]

    def series(
        self, uuid: str, gpu_instance: int | None, since_seconds: float | None = None
    ) -> Series | None:
        """Return the points of the last 15 minutes after `since_seconds`; None without a ring."""
        with self._lock:
            ring = self._rings.get((uuid, gpu_instance))
            if ring is None or not self._count:
                return None
            times = self._after(since_seconds)
            values = self._newest(ring, len(times))
        columns = {name: _column(values, name) for name in COLUMNS}
        return Series(times, {name: each for name, each in columns.items() if set(each) - {None}})

    def recent(
        self, names: Sequence[str], seconds: float
    ) -> tuple[list[float], dict[Key, Columns]]:
        """Return the times of the last `seconds`, and these columns of every share there is."""
        with self._lock:
            if not self._count:
                return [], {}
            times = self._after(self._times[self._at] - seconds)
            taken = {key: self._newest(ring, len(times)) for key, ring in self._rings.items()}
        return times, {
            key: {name: _column(values, name) for name in names} for key, values in taken.items()
        }

    def _after(self, since: float | None) -> list[float]:
        """Return the times of the last 15 minutes after `since`, rising."""
        first = (self._at - self._count + 1) % len(self._times)
        times = (self._times[first:] + self._times[:first])[: self._count].tolist()
        oldest = times[-1] - KEPT_SECONDS
        return times[bisect_right(times, oldest if since is None else max(oldest, since)) :]

    def _newest(self, ring: _Ring, count: int) -> array[float]:
        """Return the newest points of a ring, the oldest of them first."""
        start = (self._at - count + 1) % len(self._times)
        over = max(0, start + count - len(self._times))  # those that lie at the ring's start
        values = ring.values
        return values[start * _WIDTH : (start + count) * _WIDTH] + values[: over * _WIDTH]

    def _advance(self, now: float) -> bool:
        """Go to the point for a reading at `now`; return whether it is a new one.

        Points that would lie in the future after the clock was set back are forgotten. A hole of
        more than 3 intervals gets a point at which nothing is known.
        """
        while self._count and now < self._started:
            self._count -= 1
            self._at = (self._at - 1) % len(self._times)
            self._started = self._last = self._times[self._at]
        if not self._count:
            self._begin(now)
            return True
        gap, self._gap = self._gap, now - self._last
        # Half an interval early is in time; after a late reading the next may come soon.
        if now - self._started + max(self._gap, gap) / 2 < POINT_SECONDS:
            self._last = self._times[self._at] = now
            return False
        if self._gap > max(HOLE_INTERVALS * gap, SHORTEST_HOLE_SECONDS):
            self._begin(self._last + min(max(gap, 0.0), self._gap / 2))
            for ring in self._rings.values():
                ring.put(self._at, _NO_ROW)
        self._begin(now)
        return True

    def _begin(self, now: float) -> None:
        """Take the next place of the ring, which grows until it is full."""
        self._started = self._last = now
        self._at = 0 if self._at + 1 == POINTS else self._at + 1
        if self._at == len(self._times):
            self._times.append(now)
            for ring in self._rings.values():
                ring.values.extend(_NO_ROW)
        self._times[self._at] = now
        self._count = min(self._count + 1, POINTS)

    def _values(self, snapshot: Snapshot) -> dict[Key, dict[str, float]]:
        ranks, now = live_ranks(snapshot.ranks), snapshot.timestamp_seconds
        found: dict[Key, dict[str, float]] = {}
        before, self._link_totals = self._link_totals, {}
        for gpu in snapshot.gpus:
            if not gpu.up:
                continue
            uuid = gpu.device.uuid
            if gpu.device.mig:
                found[uuid, None] = readings(gpu, None, (), now)
            rates = self._link_rates(gpu, before)
            for share in gpu.shares:
                here = ranks.get(Place(uuid, share.gpu_instance), ())
                found[uuid, share.gpu_instance] = readings(gpu, share, here, now, rates)
        return found

    def _link_rates(
        self, gpu: Gpu, before: Mapping[str, tuple[float, Mapping[str, float | None]]]
    ) -> dict[str, float]:
        """Return the bytes/s of the board's links of which totals are known, by column."""
        read = gpu.last_read_timestamp_seconds
        if gpu.device.mig or read is None:
            return {}
        now = {name: getattr(gpu.totals, total) for name, total in LINKS.items()}
        self._link_totals[gpu.device.uuid] = read, now
        then, old = before.get(gpu.device.uuid, (read, now))
        if read <= then:
            return {}
        return {
            name: (total - old[name]) / (read - then)
            for name, total in now.items()
            if total is not None and old[name] is not None and total >= old[name]
        }
