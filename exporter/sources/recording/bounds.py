# SPDX-License-Identifier: Apache-2.0
"""Limits on a recording: it may come from anyone, and 1 MB of it may unpack to gigabytes.

A recording is read as it is played, so its length costs no memory. The current line does, and so
does the state of each GPU, share and name, which is kept until the replay ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from exporter.model.reading import SlotReport
from exporter.sources.recording.lines import InvalidLine

LONGEST_LINE_BYTES = 4 * 2**20
MOST_VALUES = 100_000
"""In one line, before it is read: a value takes two bytes in the file and a hundred in memory."""

MOST_ITEMS = 64
"""Of one list or table, unless it is named here."""
MOST_ITEMS_OF: Mapping[str, int] = {
    "gpus": 256,
    "devices": 256,
    "specs": 256,
    "xids": 256,
    "processes": 4096,
    "states": 256,
    "allocations": 4096,
    "named": 16_384,
    "pod_labels": 4096,
}
LONGEST_TEXT = 4096
LONGEST_KEY = 100
LONGEST_KEY_OF: Mapping[str, int] = {"pod_labels": 400}
"""Characters. The names of a pod and of its namespace are one key, and so is that of a label."""

MOST_GPUS = 1024
"""Different index or UUID, in the whole recording."""
MOST_SHARES = 2048
MOST_NAMES = 65_536
"""Keys of tables, by GPU; each may become a counter."""
MOST_KEPT_BYTES = 32 * 2**20
"""The largest report of each GPU together, as estimated below."""

_VALUE_BYTES = 32
_ITEM_BYTES = 64
_Name = tuple[str, Hashable]


def check_line(line: bytes) -> None:
    """Refuse a line of too many values before it is parsed.

    Raises:
        InvalidLine: there are more than MOST_VALUES.
    """
    if line.count(b",") + line.count(b"[") + line.count(b"{") > MOST_VALUES:
        raise InvalidLine("", f"at most {MOST_VALUES} values in a line")


def weight(value: Any, field: str, names: set[_Name] | None = None) -> int:
    """Return about how many bytes a value takes in memory; add the keys of its tables to `names`.

    Raises:
        InvalidLine: a list or table within it has too many items, or a text is too long.
    """
    kind = type(value)
    if kind is float or kind is int or kind is bool or value is None:
        return _VALUE_BYTES
    if kind is str:
        return _text(value, field, LONGEST_TEXT)
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        return _ITEM_BYTES + sum(
            [weight(getattr(value, each.name), each.name, names) for each in fields]
        )
    most = MOST_ITEMS_OF.get(field, MOST_ITEMS)
    if len(value) > most:
        raise InvalidLine(field, f"at most {most} items")
    total = _ITEM_BYTES * (1 + len(value))
    if isinstance(value, Mapping):
        for key, item in value.items():
            longest = LONGEST_KEY_OF.get(field, LONGEST_KEY)
            total += _text(key, field, longest) if type(key) is str else _VALUE_BYTES
            total += weight(item, field, names)
            if names is not None:
                names.add((field, key))
        return total
    return total + sum([weight(item, field, names) for item in value])


def _text(text: str, field: str, longest: int) -> int:
    if len(text) > longest:
        raise InvalidLine(field, f"text of at most {longest} characters")
    return _ITEM_BYTES + len(text) * (1 if text.isascii() else 4)


class MemoryBudget:
    """Limits what the replay keeps in memory over all lines, per GPU, share and name: raises
    InvalidLine beyond."""

    def __init__(self) -> None:
        self._reports: dict[tuple[int, str | None], int] = {}
        """The weight of the largest report, by the GPU's number and UUID."""
        self._bytes = 0
        self._shares: set[tuple[str | None, int | None]] = set()
        self._names: set[tuple[str | None, _Name]] = set()

    def add(self, reports: Iterable[SlotReport], **tables: Mapping[Any, Any]) -> None:
        """Add the reports of the GPUs, and by name the tables that belong to no GPU.

        Raises:
            InvalidLine: a part, or the total, exceeds a limit.
        """
        for report in reports:
            self._add_report(report)
        for field, table in tables.items():
            names: set[_Name] = set()
            weight(table, field, names)
            for key, item in table.items():
                if isinstance(item, Mapping):
                    names.update((f"{field} {key}", code) for code in item)
            self._add_names(None, names)

    def _add_report(self, report: SlotReport) -> None:
        reading = report.reading
        device = reading.device if reading is not None else report.device
        uuid = None if device is None else device.uuid
        names: set[_Name] = set()
        size = weight(report, "gpus", names)
        before = self._reports.get((report.index, uuid), 0)
        self._reports[report.index, uuid] = max(size, before)
        self._bytes += max(size - before, 0)
        if device is not None:
            self._shares.update((uuid, each.gpu_instance) for each in device.instances)
        if reading is not None:
            self._shares.update((uuid, each.gpu_instance) for each in reading.shares)
        self._add_names(uuid, names)
        if len(self._reports) > MOST_GPUS:
            raise InvalidLine("gpus", f"at most {MOST_GPUS} different GPUs in a recording")
        if len(self._shares) > MOST_SHARES:
            raise InvalidLine("shares", f"at most {MOST_SHARES} different shares in a recording")
        if self._bytes > MOST_KEPT_BYTES:
            raise InvalidLine("gpus", f"all GPUs together to take at most {MOST_KEPT_BYTES} bytes")

    def _add_names(self, uuid: str | None, names: set[_Name]) -> None:
        self._names.update((uuid, name) for name in names)
        if len(self._names) > MOST_NAMES:
            raise InvalidLine("", f"at most {MOST_NAMES} different names in a recording")
