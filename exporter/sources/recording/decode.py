# SPDX-License-Identifier: Apache-2.0
"""From the lines of a recording back to rounds of readings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from exporter.model.reading import Board, Reading, SlotReport
from exporter.sources.recording.codec import Malformed, from_plain, whole_number
from exporter.sources.recording.ticks import (
    MOST_GPUS,
    MOST_LAYOUTS,
    NANOSECONDS,
    NEW_SLOT,
    Fast,
    Node,
    Slot,
    Tick,
    below,
    changed,
)


def _with_numbers(layout: Any, numbers: Iterator[Any]) -> Any:
    if layout is None:
        return next(numbers)
    if isinstance(layout, dict):
        return {key: _with_numbers(item, numbers) for key, item in layout.items()}
    if isinstance(layout, list):
        return [_with_numbers(item, numbers) for item in layout]
    return layout


class TickDecoder:
    """Turns the lines of a recording, in their order, back into rounds."""

    def __init__(self) -> None:
        self._at = 0
        self._node = Node()
        self._slots: dict[int, Slot] = {}
        self._readings: dict[int, Reading | None] = {}
        self._layouts: dict[int, Any] = {}

    def tick(self, line: Any) -> Tick:
        """Return what was known after the line that `line` was parsed from.

        A reading that did not change is the same object as in the tick before.

        Raises:
            Malformed: the line is not one that `TickEncoder` writes.
        """
        if not isinstance(line, dict):
            raise Malformed("", "an object")
        for name in line:
            if name not in _PARTS:
                raise Malformed(ascii(name)[1:-1][:40], "a field that this version knows")
        at = _number_at(line, "t")
        if at < self._at:
            raise Malformed("t", "a time after that of the line before")
        self._at = at
        self._node = below("node", changed, self._node, line.get("node", {}))
        for index, found in _items(line, "gpus", MOST_GPUS):
            below(f"gpus.{index}", self._change_slot, index, found)
        for position, layout in _items(line, "layouts", MOST_LAYOUTS):
            self._layouts[position] = layout
        rows = line.get("rows", [])
        if not isinstance(rows, list):
            raise Malformed("rows", "a list")
        for position, row in enumerate(rows):
            below(f"rows[{position}]", self._take_row, row)
        return Tick(
            at / NANOSECONDS,
            tuple(
                SlotReport(
                    index, slot.device, self._readings.get(index), slot.problem, slot.failures
                )
                for index, slot in self._slots.items()
            ),
            self._node.xids,
            self._node.devices,
            self._node.problem,
            self._node.failed_initialisations,
        )

    def _change_slot(self, index: int, found: Any) -> None:
        if found is None:
            self._slots.pop(index, None)
            self._readings.pop(index, None)
            return
        if isinstance(found, dict) and "reading" in found:
            found = dict(found)
            if found.pop("reading") is not None:
                raise Malformed("reading", "null")
            self._readings[index] = None
        self._slots[index] = changed(self._slots.get(index, NEW_SLOT), found)

    def _take_row(self, row: Any) -> None:
        if not isinstance(row, list) or len(row) < 3:
            raise Malformed("", "a list of a GPU, a layout, an age and numbers")
        index, layout, age = (whole_number(item) for item in row[:3])
        slot = self._slots.get(index)
        if slot is None or slot.device is None:
            raise Malformed("[0]", "a GPU that was described before")
        if layout not in self._layouts:
            raise Malformed("[1]", "a layout that was given before")
        numbers = iter(row[3:])
        try:
            plain = _with_numbers(self._layouts[layout], numbers)
        except StopIteration:
            raise Malformed("", "a number for each place of the layout") from None
        if next(numbers, None) is not None:
            raise Malformed("", "no more numbers than places of the layout")
        fast: Fast = from_plain(Fast, plain)
        if len(slot.processes) != len(fast.shares):
            raise Malformed("", "as many shares as lists of processes")
        seconds = (self._at - age) / NANOSECONDS
        self._readings[index] = Reading(
            device=slot.device,
            timestamp_seconds=seconds,
            monotonic_seconds=seconds,
            vitals=fast.vitals,
            board=slot.board or Board(),
            shares=tuple(
                dataclasses.replace(share, processes=processes)
                for share, processes in zip(fast.shares, slot.processes, strict=True)
            ),
            health=slot.health,
            states=slot.states,
            read_seconds=fast.read_seconds,
        )


_PARTS = frozenset({"t", "node", "gpus", "layouts", "rows"})


def _number_at(line: Mapping[str, Any], name: str) -> int:
    at: int = below(name, whole_number, line.get(name))
    return at


def _items(line: Mapping[str, Any], name: str, most: int) -> Iterator[tuple[int, Any]]:
    """Yield the entries of an object whose keys are whole numbers below `most`."""
    entries = line.get(name, {})
    if not isinstance(entries, dict):
        raise Malformed(name, "an object")
    for key, item in entries.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= 4 and int(key) < most):
            raise Malformed(name, f"whole numbers below {most} as keys")
        yield int(key), item
