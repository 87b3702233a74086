# SPDX-License-Identifier: Apache-2.0
"""From rounds of readings to the lines of a recording."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from exporter.model.reading import Reading, SlotReport, XidRecord
from exporter.sources.recording.codec import is_known, number, stored_fields, to_plain
from exporter.sources.recording.ticks import (
    MOST_LAYOUTS,
    NANOSECONDS,
    NEW_SLOT,
    Fast,
    Node,
    Slot,
    changes,
)


class TickEncoder:
    """Turns rounds into lines; each line says what differs from the one before."""

    def __init__(self, started_monotonic_seconds: float) -> None:
        self._started = started_monotonic_seconds
        self._node = Node()
        self._slots: dict[int, Slot] = {}
        self._readings: dict[int, Reading | None] = {}
        self._layouts: dict[tuple[object, ...], int] = {}

    def line(
        self,
        monotonic_seconds: float,
        reports: Sequence[SlotReport],
        xids: Mapping[str, Mapping[int, XidRecord]],
        devices: Mapping[str, int],
        problem: str | None,
        failed_initialisations: int,
    ) -> bytes:
        """Return the line for a round that ended now."""
        now = self._nanoseconds(monotonic_seconds)
        line: dict[str, Any] = {"t": now}
        node = Node(
            {uuid: dict(records) for uuid, records in xids.items()},
            dict(devices),
            problem,
            failed_initialisations,
        )
        if found := changes(self._node, node):
            line["node"] = found
            self._node = node
        if len(self._layouts) + len(reports) > MOST_LAYOUTS:
            self._layouts.clear()
        layouts: dict[int, Any] = {}
        rows = []
        for report in reports:
            if found := self._slot_changes(report):
                line.setdefault("gpus", {})[report.index] = found
            reading = report.reading
            if reading is not None and reading is not self._readings.get(report.index):
                rows.append(self._row(report.index, reading, now, layouts))
            self._readings[report.index] = reading
        for index in self._readings.keys() - {report.index for report in reports}:
            line.setdefault("gpus", {})[index] = None
            del self._slots[index], self._readings[index]
        if layouts:
            line["layouts"] = layouts
        if rows:
            line["rows"] = rows
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"

    def _nanoseconds(self, monotonic_seconds: float) -> int:
        return round((monotonic_seconds - self._started) * NANOSECONDS)

    def _slot_changes(self, report: SlotReport) -> dict[str, Any]:
        before = self._slots.get(report.index, NEW_SLOT)
        reading = report.reading
        if reading is None:
            after = dataclasses.replace(
                before,
                device=report.device,
                problem=report.problem,
                failures=dict(report.failures),
            )
        else:
            after = Slot(
                reading.device,
                reading.board,
                reading.health,
                reading.states,
                tuple([share.processes for share in reading.shares]),
                report.problem,
                dict(report.failures),
            )
        found = changes(before, after)
        if reading is None and self._readings.get(report.index, NEW_SLOT) is not None:
            found["reading"] = None
        if found:
            self._slots[report.index] = after
        return found

    def _row(self, index: int, reading: Reading, now: int, layouts: dict[int, Any]) -> list[Any]:
        row: list[Any] = [index, 0, now - self._nanoseconds(reading.monotonic_seconds)]
        fast = Fast(
            reading.vitals,
            tuple([dataclasses.replace(share, processes=None) for share in reading.shares]),
            reading.read_seconds,
        )
        shape: list[object] = []
        _flatten(fast, shape, row)
        key = tuple(shape)
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._layouts[key] = len(self._layouts)
            layouts[layout] = _without_numbers(to_plain(fast))
        row[1] = layout
        return row


def _flatten(value: Any, shape: list[object], numbers: list[Any]) -> None:
    """Append the numbers in `value` to `numbers`, and all else that it is made of to `shape`."""
    kind = type(value)
    if kind is float:
        numbers.append(number(value))
        shape.append(None)
    elif kind is int:
        numbers.append(value)
        shape.append(None)
    elif kind in (str, bool, frozenset):
        shape.append(value)
    elif kind is tuple:
        shape.append(len(value))
        for item in value:
            _flatten(item, shape, numbers)
    elif isinstance(value, Mapping):
        shape.append(len(value))
        for key, item in value.items():
            if is_known(item):
                shape.append(key)
                _flatten(item, shape, numbers)
    else:
        for name, default in stored_fields(kind):
            item = getattr(value, name)
            if item is not default and item != default and is_known(item):
                shape.append(name)
                _flatten(item, shape, numbers)
        shape.append(kind)


def _without_numbers(plain: Any) -> Any:
    """Return a plain value with None in the place of each number."""
    if isinstance(plain, dict):
        return {key: _without_numbers(item) for key, item in plain.items()}
    if isinstance(plain, list):
        return [_without_numbers(item) for item in plain]
    return plain if isinstance(plain, str | bool) else None
