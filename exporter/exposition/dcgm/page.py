# SPDX-License-Identifier: Apache-2.0
"""Renders a snapshot as dcgm-exporter does; reuses lines that did not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exporter.exposition.dcgm import Names
from exporter.exposition.dcgm.fields import FIELDS, DcgmMetric
from exporter.exposition.dcgm.owners import Owner, owners_of
from exporter.exposition.parts import Node, Part, is_same, subjects
from exporter.model.dcgm import MADE_HERE
from exporter.model.reading import Device
from exporter.model.snapshot import Snapshot

SERIES = {
    "legacy": "# Names, labels and units are those of dcgm-exporter up to 4.8.",
    "current": "# Names, labels and units are those of dcgm-exporter from 4.9 on.",
}
UNREAL = {
    "simulate": "# Simulated: no number here is of a real GPU.",
    "replay": "# Replayed from a recording: no number here is of now.",
}
"""By source of a GPU: the comment on a page without real GPUs."""

_NOBODY = Owner("", (), (), ())
_Found = list[tuple[Owner, Any]]


class _Lines:
    """The series of one metric, each with its last value."""

    def __init__(self, field: DcgmMetric, names: Names) -> None:
        form = field.form(names)
        self._read = field.reader.read
        self._labels = tuple(label.name for label in field.reader.labels)
        self._name = form.name
        self._write = form.unit.write
        self._heading = f"# HELP {form.name} {field.help(names)}\n# TYPE {form.name} {form.kind}\n"
        self._last: dict[str, tuple[float, str]] = {}

    def text(self, found: _Found) -> str:
        """Return heading and lines; empty without a value."""
        last: dict[str, tuple[float, str]] = {}
        for owner, subject in found:
            for values, value in self._read(subject):
                if value - value != 0:  # NaN or infinite
                    continue
                labels = owner.of(zip(self._labels, values, strict=True)) if values else owner.text
                seen = self._last.get(labels)
                if seen is None or seen[0] != value:
                    seen = value, f"{self._name}{{{labels}}} {self._write(value)}\n"
                last[labels] = seen
        self._last = last
        return "".join([self._heading, *(line for _, line in last.values())]) if last else ""


class DcgmPage:
    """Renders snapshots under the names of one generation; one thread at a time."""

    def __init__(self, names: Names, hostname: str) -> None:
        self._names = names
        self._hostname = hostname
        kinds = list(dict.fromkeys((field.reader.part, field.each) for field in FIELDS))
        self._parts: list[Part[Any]] = [part for part, _ in kinds]
        self._each = [each for _, each in kinds]
        self._fields = [
            (kinds.index((field.reader.part, field.each)), _Lines(field, names)) for field in FIELDS
        ]
        self._found: list[_Found] = [[] for _ in kinds]
        self._texts = [""] * len(self._fields)

    def render(self, snapshot: Snapshot | None) -> bytes:
        """Return the page; before the first snapshot it has no series."""
        owners = {} if snapshot is None else owners_of(snapshot, self._names, self._hostname)

        def owner(device: Device, instance: int | None) -> Owner:
            return owners[device.uuid, instance]

        instances = _instances(owners)
        found = [
            _spread(of_part, instances) if each else of_part
            for of_part, each in zip(
                subjects(Node(snapshot), self._parts, owner, lambda _: _NOBODY, _NOBODY),
                self._each,
                strict=True,
            )
        ]
        # Limits, health and other slow readings are the same objects for many ticks.
        same = [is_same(now, before) for now, before in zip(found, self._found, strict=True)]
        self._found = found
        self._texts = [
            text if same[part] else lines.text(found[part])
            for (part, lines), text in zip(self._fields, self._texts, strict=True)
        ]
        sources = {gpu.device.source for gpu in snapshot.gpus} if snapshot is not None else set()
        unreal = [line for source, line in UNREAL.items() if source in sources]
        heading = [f"{line}\n" for line in (MADE_HERE, SERIES[self._names], *unreal)]
        return "".join([*heading, *self._texts]).encode()


def _instances(owners: Mapping[tuple[str, int | None], Owner]) -> dict[str, list[Owner]]:
    """Return the instances of each board that has any, by the board's labels."""
    found: dict[str, list[Owner]] = {}
    for (uuid, instance), owner in owners.items():
        if instance is not None:
            found.setdefault(owners[uuid, None].text, []).append(owner)
    return found


def _spread(found: _Found, instances: Mapping[str, list[Owner]]) -> _Found:
    """Repeat the values of a board for each of its instances, if it has any."""
    if not instances:
        return found
    return [
        (each, subject) for owner, subject in found for each in instances.get(owner.text, (owner,))
    ]
