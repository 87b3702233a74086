# SPDX-License-Identifier: Apache-2.0
"""One line for each round of readings: what is new in full, what changes all the time as numbers.

A GPU's identity, board, health, states and processes stand in a line only when they differ from
the line before. The rest of its reading is a row of numbers; the row's layout, which says where
each number belongs, stands in the first line that uses it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.model.reading import (
    Board,
    Device,
    Health,
    Process,
    ShareReading,
    SlotReport,
    Vitals,
    XidRecord,
)
from exporter.sources.recording.codec import Malformed, from_plain, stored_fields, to_plain

MOST_LAYOUTS = 1000
MOST_GPUS = 1024
NANOSECONDS = 1_000_000_000

Processes = tuple[tuple[Process, ...] | None, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """Everything that the sources had handed over after one round."""

    seconds: float
    """Since the recording began."""
    reports: tuple[SlotReport, ...] = ()
    """Readings are stamped in seconds since the recording began, on both of their clocks."""
    xids: Mapping[str, Mapping[int, XidRecord]] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    problem: str | None = None
    failed_initialisations: int = 0


@dataclass(frozen=True, slots=True)
class Slot:
    """What a GPU's rows leave out, as a line may change it."""

    device: Device | None = None
    board: Board | None = None
    health: Health | None = None
    states: Mapping[str, str] = field(default_factory=dict)
    processes: Processes = ()
    """By share, in the order of the reading's shares."""
    problem: str | None = None
    failures: Mapping[str, int] = field(default_factory=dict)


NEW_SLOT = Slot()
"""A GPU of which no line has told yet."""


@dataclass(frozen=True, slots=True)
class Fast:
    """What a GPU's rows hold."""

    vitals: Vitals
    shares: tuple[ShareReading, ...] = ()
    read_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Node:
    """What is known of the node beside its GPUs, as a line may change it."""

    xids: Mapping[str, Mapping[int, XidRecord]] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    problem: str | None = None
    failed_initialisations: int = 0


_BY_FIELD = (Board, Health)
"""Of these a line says only the fields that differ."""


def changes(before: object, after: object) -> dict[str, Any]:
    """Return the plain value of each field that differs; None says that it has its default."""
    found: dict[str, Any] = {}
    for name, default in stored_fields(type(after)):
        old, new = getattr(before, name), getattr(after, name)
        if new is old or new == old:
            continue
        if isinstance(old, _BY_FIELD) and isinstance(new, _BY_FIELD):
            found[name] = changes(old, new)
        else:
            found[name] = None if new == default else to_plain(new)
    return found


def changed(before: Any, found: Any) -> Any:
    """Return `before` with what `changes` found.

    Raises:
        Malformed: a field is unknown or has the wrong type.
    """
    if not isinstance(found, dict):
        raise Malformed("", "an object")
    cls = type(before)
    known = dict(stored_fields(cls))
    values = {}
    for name, item in found.items():
        if name not in known:
            raise Malformed(ascii(name)[1:-1][:40], "a field that this version knows")
        old = getattr(before, name)
        if item is None:
            values[name] = known[name]
        elif isinstance(old, _BY_FIELD):
            values[name] = below(name, changed, old, item)
        else:
            values[name] = getattr(from_plain(cls, {name: item}), name)
    return dataclasses.replace(before, **values)


def below(name: str, function: Any, *arguments: Any) -> Any:
    """Return what `function` returns; name the field in which it finds something malformed."""
    try:
        return function(*arguments)
    except Malformed as error:
        raise error.below(name) from None
