# SPDX-License-Identifier: Apache-2.0
"""Renders a snapshot as text; reuses the starts of lines, and lines whose value did not change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from exporter.exposition.catalogue import selected
from exporter.exposition.family import Family, Level
from exporter.exposition.formats import END, Format, headings, labels_text
from exporter.exposition.labels import RANK_LABELS, SHARE_LABELS, Scope
from exporter.exposition.parts import RANK_SINCE, SINCE, LabelValues, Node, Part, is_same, subjects
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
    created: bool = False
    """OpenMetrics says of each counter since when it counts, where that is known."""
    started_unix_seconds: float = 0.0
    """Since when those of the exporter itself count."""


@dataclass(frozen=True, slots=True)
class Block:
    """One rendered family."""

    names: tuple[str, str]
    """As exposed, and without ``_total`` or ``_info``."""
    headings: Mapping[Format, str]
    lines: Sequence[str]
    openmetrics_lines: Sequence[str] = ()
    """Where they are others in that format: with ``_created``."""

    def lines_of(self, form: Format) -> Sequence[str]:
        """Return the lines of the family in a format, without its headings."""
        is_other = form == "openmetrics-1.0.0" and self.openmetrics_lines
        return self.openmetrics_lines if is_other else self.lines


def page(blocks: Iterable[Block], form: Format) -> bytes:
    """Return the page of these families in a format."""
    texts: list[str] = []
    for block in blocks:
        texts.append(block.headings[form])
        texts += block.lines_of(form)
    texts.append(END[form])
    return "".join(texts).encode()


class _Line:
    """A series, and the line for its last value."""

    __slots__ = ("device", "length", "text", "value", "values")

    def __init__(self, device: str, values: LabelValues, start: str) -> None:
        self.device = device
        self.values = values
        self.text = start
        self.length = len(start)
        """Of the line up to its value."""
        self.value: float | None = None

    def of(self, value: float) -> str:
        """Return the line with a new value; empty for NaN and infinity."""
        if value - value != 0:
            self.value = None
            return ""
        self.value = value
        self.text = f"{self.text[: self.length]}{value!r}\n"
        return self.text


COUNTED_HERE: frozenset[Scope] = frozenset({"share", "rank", "node"})
"""Counters of others are the driver's, and nobody says since when it counts."""

_Owner = tuple[object, ...]
"""The label values of a device or a rank; None for an omitted label."""


class _FamilyLines:
    def __init__(self, family: Family, part: int) -> None:
        self.part = part
        self._family = family
        self._names = (family.name, family.base_name)
        self._headings = headings(*self._names, family.kind, family.unit, family.help)
        self._counts = family.kind == "counter" and family.scope in COUNTED_HERE
        self._read = family.reader.read
        self._labels = tuple(label.name for label in family.labels)
        self._lines: list[_Line] = []

    def block(self, found: list[tuple[str, Any]], since: Mapping[str, float]) -> Block | None:
        """Return the family for the objects of its part; None without samples.

        `since` has the Unix time from which counters of a device, rank or the node count.
        """
        before, now = self._lines, list[_Line]()
        known: dict[tuple[str, LabelValues], _Line] = {}
        name, base_name = self._names
        out: list[str] = []
        created: list[str] = []
        for device, subject in found:
            begins = since.get(device) if self._counts else None
            for values, value in self._read(subject):
                # Most series are where they were in the last snapshot.
                line = before[len(now)] if len(now) < len(before) else None
                if line is None or line.values != values or line.device != device:
                    known = known or {(each.device, each.values): each for each in before}
                    line = known.get((device, values)) or self._new(device, values)
                    if line is None:
                        continue
                now.append(line)
                text = line.text if value == line.value else line.of(value)
                if not text:
                    continue
                out.append(text)
                if begins is not None:
                    labels = text[len(name) : line.length]
                    created.append(f"{text}{base_name}_created{labels}{begins!r}\n")
        self._lines = now
        return Block(self._names, self._headings, out, created) if out else None

    def _new(self, device: str, values: LabelValues) -> _Line | None:
        """Return a new series; None if these label values may not be published."""
        if not self._family.lists(values):
            return None
        own = labels_text(zip(self._labels, values, strict=True))
        labels = ",".join(filter(None, (device, own)))
        name = self._names[0]
        return _Line(device, values, f"{name}{{{labels}}} " if labels else f"{name} ")


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
        self._options = options
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
        since: dict[str, float] = {}
        if self._options.created:
            starts = subjects(node, (SINCE, RANK_SINCE), device_name, rank_name, "")
            since = {"": self._options.started_unix_seconds, **dict(chain(*starts))}
        # Identity, limits, ceilings and slow readings are the same objects for many ticks.
        same = [is_same(now, before) for now, before in zip(found, self._found, strict=True)]
        self._found = found
        self._blocks = [
            block if same[family.part] else family.block(found[family.part], since)
            for family, block in zip(self._families, self._blocks, strict=True)
        ]
        self._owners = used
        return [block for block in self._blocks if block is not None]
