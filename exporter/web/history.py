# SPDX-License-Identifier: Apache-2.0
"""The last 15 minutes of every GPU in columns: at most one point a second, no snapshots."""

from __future__ import annotations

import threading
from array import array
from collections import deque
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


class _Point(NamedTuple):
    began: float
    """When its first reading was."""
    time: float
    """When its newest reading was, which it holds."""
    places: Mapping[Key, int]
    """Where the row of each share begins; one object for all points with the same shares."""
    values: array[float]

    def row(self, key: Key) -> array[float]:
        """Return the values of a share in the order of `COLUMNS`."""
        start = self.places.get(key)
        return _NO_ROW if start is None else self.values[start : start + _WIDTH]


def _columns(points: Sequence[_Point], key: Key, names: Sequence[str]) -> Columns:
    values = array("f")
    for point in points:
        values += point.row(key)
    return {
        name: [value if value == value else None for value in values[COLUMNS.index(name) :: _WIDTH]]
        for name in names
    }


def _parts(snapshot: Snapshot) -> dict[Key, Parts]:
    return {
        (gpu.device.uuid, share.gpu_instance): tuple(
            each for each in gpu.device.instances if each.gpu_instance == share.gpu_instance
        )
        for gpu in snapshot.gpus
        if gpu.up and gpu.device.mig
        for share in gpu.shares
    }


class History:
    """The points of the last 15 minutes, of all shares. One thread adds; any reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._points: deque[_Point] = deque(maxlen=POINTS)
        self._parts: dict[Key, Parts] = {}
        self._gap = POINT_SECONDS
        """Between the last two readings."""
        self._link_totals: dict[str, tuple[float, Mapping[str, float | None]]] = {}
        """By GPU: when they were read, and what was moved by then."""

    def add(self, snapshot: Snapshot) -> None:
        """Take a snapshot."""
        now, found = snapshot.timestamp_seconds, self._values(snapshot)
        places: Mapping[Key, int] = {key: at * _WIDTH for at, key in enumerate(found)}
        rows = [row.get(name, _UNKNOWN) for row in found.values() for name in COLUMNS]
        with self._lock:
            for key, present in _parts(snapshot).items():
                if self._parts.get(key, present) != present:
                    self._forget(key)
                self._parts[key] = present
            began = self._begin(now)
            if self._points and self._points[-1].places == places:
                places = self._points[-1].places
            self._points.append(_Point(began, now, places, array("f", rows)))

    def series(
        self, uuid: str, gpu_instance: int | None, since_seconds: float = 0.0
    ) -> Series | None:
        """Return the points of the last 15 minutes after `since_seconds`; None without any."""
        key = uuid, gpu_instance
        with self._lock:
            kept = list(self._points)
        if not any(key in point.places for point in kept):
            return None
        points = [point for point in kept if point.time > since_seconds]
        columns = _columns(points, key, COLUMNS)
        return Series(
            [point.time for point in points],
            {name: each for name, each in columns.items() if set(each) - {None}},
        )

    def recent(
        self, names: Sequence[str], seconds: float
    ) -> tuple[list[float], dict[Key, Columns]]:
        """Return the times of the last `seconds`, and these columns of every share there is."""
        with self._lock:
            kept = list(self._points)
        points = [point for point in kept if point.time > kept[-1].time - seconds]
        keys = dict.fromkeys(key for point in points for key in point.places)
        return [point.time for point in points], {key: _columns(points, key, names) for key in keys}

    def _forget(self, key: Key) -> None:
        """Forget a share whose place another one has taken."""
        for at, point in enumerate(self._points):
            places = {other: place for other, place in point.places.items() if other != key}
            self._points[at] = point._replace(places=places)

    def _begin(self, now: float) -> float:
        """Make room for a reading at `now`; return when its point began.

        Points that would lie in the future after the clock was set back are forgotten. A hole of
        more than 3 intervals gets a point at which nothing is known.
        """
        points = self._points
        while points and now < points[-1].time:
            points.pop()
        while points and now - points[0].time >= KEPT_SECONDS:
            points.popleft()
        if not points:
            return now
        last = points[-1]
        gap, self._gap = self._gap, now - last.time
        # Half an interval early is in time; after a late reading the next may come soon.
        if now - last.began + max(self._gap, gap) / 2 < POINT_SECONDS:
            points.pop()
            return last.began
        if self._gap > max(HOLE_INTERVALS * gap, SHORTEST_HOLE_SECONDS):
            hole = last.time + min(max(gap, 0.0), self._gap / 2)
            points.append(_Point(hole, hole, {}, array("f")))
        return now

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
