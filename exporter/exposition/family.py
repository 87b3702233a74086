# SPDX-License-Identifier: Apache-2.0
"""What is known about one metric family before any value is: the shape of a catalogue entry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["counter", "gauge", "info"]
Level = Literal["core", "full"]
Scope = Literal["gpu", "board", "share", "rank", "node"]
"""Whom a family describes.

* gpu: each physical GPU, also while it is down
* board: each physical GPU that is up
* share: each whole GPU that is up or, while MIG is on, each of its GPU instances
* rank: each rank of a training job on one device, or on none
* node: the exporter or the node as a whole
"""

DEVICE_LABELS = ("gpu", "uuid")
INSTANCE_LABEL = "gpu_instance"
RANK_LABELS = ("training_job", "rank", "uuid", INSTANCE_LABEL)
"""The last two are left out where there is no such device."""

_SUFFIX: dict[Kind, str] = {"counter": "_total", "gauge": "", "info": "_info"}


@dataclass(frozen=True, slots=True)
class Label:
    """A label besides those of the device: its listed values, or what an open one holds."""

    name: str
    values: tuple[str, ...] = ()
    meaning: str = ""
    full_values: tuple[str, ...] = ()
    """Those of `values` that level core leaves out."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family: everything but its values."""

    name: str
    """As exposed in the text format, with ``_total`` or ``_info``."""
    kind: Kind
    unit: str
    """The end of the name without ``_total``, or empty."""
    scope: Scope
    level: Level
    meaning: str
    origin: str
    labels: tuple[Label, ...] = ()

    def at(self, level: Level) -> Family:
        """Return the family as a level serves it: core has fewer label values."""
        if level == "full":
            return self
        labels = tuple(
            replace(
                label,
                values=tuple(value for value in label.values if value not in label.full_values),
            )
            for label in self.labels
        )
        return replace(self, labels=labels)

    def lists(self, values: tuple[str, ...]) -> bool:
        """Tell whether these label values may be published: the listed ones are a contract."""
        return all(
            not label.values or value in label.values
            for label, value in zip(self.labels, values, strict=True)
        )

    @property
    def base_name(self) -> str:
        """The name that OpenMetrics gives the family: without ``_total`` or ``_info``."""
        return self.name.removesuffix(_SUFFIX[self.kind])

    @property
    def help(self) -> str:
        """The HELP line: the meaning, then where the value comes from."""
        return f"{self.meaning} Source: {self.origin}."

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Every label name, in the order of the sample lines; those that some lack included."""
        own = tuple(label.name for label in self.labels)
        if self.scope == "node":
            return own
        if self.scope == "share":
            return (*DEVICE_LABELS, INSTANCE_LABEL, *own)
        if self.scope == "rank":
            return (*RANK_LABELS, *own)
        return (*DEVICE_LABELS, *own)


def counter(
    name: str,
    unit: str,
    scope: Scope,
    level: Level,
    meaning: str,
    origin: str,
    *labels: Label,
) -> Family:
    """Describe a family that only rises."""
    return Family(name, "counter", unit, scope, level, meaning, origin, labels)


def gauge(
    name: str,
    unit: str,
    scope: Scope,
    level: Level,
    meaning: str,
    origin: str,
    *labels: Label,
) -> Family:
    """Describe a family that may rise and fall."""
    return Family(name, "gauge", unit, scope, level, meaning, origin, labels)


def info(
    name: str, scope: Scope, level: Level, meaning: str, origin: str, *labels: Label
) -> Family:
    """Describe a family whose value is always 1 and whose labels carry the facts."""
    return Family(name, "info", "", scope, level, meaning, origin, labels)
