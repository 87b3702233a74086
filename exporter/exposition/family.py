# SPDX-License-Identifier: Apache-2.0
"""A metric family: name, type, help, and how to read its values from a snapshot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from exporter.exposition.labels import Label, Scope
from exporter.exposition.parts import ValueReader

Kind = Literal["counter", "gauge", "info"]
Level = Literal["core", "full"]

UNITS = (
    *("flops_per_second", "bytes_per_second", "flops_per_byte"),
    *("seconds", "joules", "watts", "ratio", "celsius", "hertz", "flops", "bytes"),
)
"""Units at the end of a name, before its suffix; the longest ones first."""

_SUFFIX: dict[Kind, str] = {"counter": "_total", "gauge": "", "info": "_info"}


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family: one row of the catalogue."""

    kind: Kind
    name: str
    """As exposed in the text format, with ``_total`` or ``_info``."""
    meaning: str
    origin: str
    reader: ValueReader
    level: Level = "full"

    @property
    def scope(self) -> Scope:
        """The kind of object that the family describes."""
        return self.reader.part.scope

    @property
    def labels(self) -> tuple[Label, ...]:
        """Its own labels, besides those of the device or of the rank."""
        return self.reader.labels

    def at(self, level: Level) -> Family:
        """Return the family as a level serves it: core has fewer label values."""
        if level == "full":
            return self
        labels = tuple(label.core() for label in self.labels)
        return replace(self, reader=replace(self.reader, labels=labels))

    def lists(self, values: tuple[str, ...]) -> bool:
        """Return whether these label values may be published: listed values are a contract."""
        return all(
            not label.values or value in label.values
            for label, value in zip(self.labels, values, strict=True)
        )

    @property
    def base_name(self) -> str:
        """The name that OpenMetrics gives the family: without ``_total`` or ``_info``."""
        return self.name.removesuffix(_SUFFIX[self.kind])

    @property
    def unit(self) -> str:
        """The unit at the end of the name, or empty."""
        name = self.base_name
        return next((unit for unit in UNITS if name.endswith(f"_{unit}")), "")

    @property
    def help(self) -> str:
        """The HELP line: the meaning, then where the value comes from."""
        return f"{self.meaning} Source: {self.origin}."


counter = partial(Family, "counter")
gauge = partial(Family, "gauge")
info = partial(Family, "info")
"""A gauge that is always 1, whose labels carry the information."""
core_counter = partial(counter, level="core")
core_gauge = partial(gauge, level="core")
core_info = partial(info, level="core")
