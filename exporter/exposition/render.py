# SPDX-License-Identifier: Apache-2.0
"""Renders a snapshot as text; reuses line prefixes, and lines whose value did not change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.exposition.catalogue import selected
from exporter.exposition.family import Family, Level
from exporter.exposition.formats import END, Format, headings, labels_text
from exporter.exposition.labels import RANK_LABELS, SHARE_LABELS
from exporter.exposition.parts import LabelValues, Node, Part, is_same, subjects
from exporter.exposition.processes import ProcessRows
from exporter.model.reading import Device
from exporter.model.snapshot import Rank


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """The options of a page."""

    level: Level = "full"
    exclude: re.Pattern[str] | None = None
    """Families whose whole name matches are left out."""
    processes: ProcessRows = field(default_factory=ProcessRows)
    revision: str = ""
    hostname: str = ""
    """The label of pages under dcgm-exporter's names."""


@dataclass(frozen=True, slots=True)
class Block:
    """One rendered family: names, heading in each format, sample lines."""

    names: tuple[str, str]
    """As exposed, and without ``_total`` or ``_info``."""
    headings: Mapping[Format, str]
    lines: str


def page(blocks: Iterable[Block], form: Format) -> bytes:
    """Return the page of these families in a format."""
    text = "".join([part for block in blocks for part in (block.headings[form], block.lines)])
    return (text + END[form]).encode()


class _Line:
    """A series: its prefix, and the line for its last value."""

    __slots__ = ("prefix", "text", "value")

    def __init__(self, name: str, labels: str) -> None:
        self.prefix = f"{name}{{{labels}}} " if labels else f"{name} "
        self.value: float | None = None
        self.text = ""

    def of(self, value: float) -> str:
        """Return the line with a new value; empty for NaN and infinity."""
        self.value = value
        self.text = f"{self.prefix}{value!r}\n" if value - value == 0 else ""
        return self.text


_Owner = tuple[object, ...]
"""The label values of a device or a rank; None for an omitted label."""


class _FamilyLines:
    """The series of one family in the last snapshot."""

    def __init__(self, family: Family, part: int) -> None:
        self.part = part
        self._family = family
        self._names = (family.name, family.base_name)
        self._headings = headings(*self._names, family.kind, family.unit, family.help)
        self._read = family.reader.read
        self._labels = tuple(label.name for label in family.labels)
        self._lines: dict[tuple[str, LabelValues], _Line] = {}

    def block(self, found: list[tuple[str, Any]]) -> Block | None:
        """Return the family for the objects of its part; None without samples."""
        before, now = self._lines, {}
        out: list[str] = []
        for device, subject in found:
            for values, value in self._read(subject):
                series = device, values
                line = before.get(series)
                if line is None:
                    if not self._family.lists(values):
                        continue
                    own = labels_text(zip(self._labels, values, strict=True))
                    line = _Line(self._family.name, ",".join(filter(None, (device, own))))
                now[series] = line
                out.append(line.text if value == line.value else line.of(value))
        self._lines = now
        text = "".join(out)
        return Block(self._names, self._headings, text) if text else None


class Renderer:
    """Renders snapshots with one set of options; one thread at a time.

    It caches a line for each series of the last snapshot.
    """

    def __init__(self, options: RenderOptions) -> None:
        families = selected(options.level, options.exclude, options.processes)
        self._parts: list[Part[Any]] = list(dict.fromkeys(each.reader.part for each in families))
        self._families = [
            _FamilyLines(each, self._parts.index(each.reader.part)) for each in families
        ]
        self._owners: dict[_Owner, str] = {}
        self._found: list[list[tuple[str, Any]]] = [[] for _ in self._parts]
        self._blocks: list[Block | None] = [None] * len(self._families)

    def blocks(self, node: Node) -> list[Block]:
        """Return the families with samples in this snapshot, in the order of the catalogue."""
        used: dict[_Owner, str] = {}

        def name(owner: _Owner, labels: tuple[str, ...]) -> str:
            text = self._owners.get(owner)
            if text is None:
                pairs = zip(labels, owner, strict=True)
                text = labels_text((name, str(value)) for name, value in pairs if value is not None)
            used[owner] = text
            return text

        def device_name(device: Device, instance: int | None) -> str:
            return name((device.index, device.uuid, instance), SHARE_LABELS)

        def rank_name(rank: Rank) -> str:
            return name((rank.job, rank.rank, rank.gpu_uuid, rank.gpu_instance), RANK_LABELS)

        found = subjects(node, self._parts, device_name, rank_name, "")
        # Identity, limits, ceilings and slow readings are the same objects for many ticks.
        same = [is_same(now, before) for now, before in zip(found, self._found, strict=True)]
        self._found = found
        self._blocks = [
            block if same[family.part] else family.block(found[family.part])
            for family, block in zip(self._families, self._blocks, strict=True)
        ]
        self._owners = used
        return [block for block in self._blocks if block is not None]
