# SPDX-License-Identifier: Apache-2.0
"""Labels: those that name a device or rank, those of a family, and how values are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from exporter.model.snapshot import Bounds

Scope = Literal["gpu", "board", "share", "reading", "rank", "node"]
"""What a family describes.

* gpu: each physical GPU, also while it is down
* board: each physical GPU that is up
* share: each whole GPU that is up or, while MIG is on, each of its GPU instances
* reading: whatever readings are absent of: a GPU that is up or asleep, or one of its GPU instances
* rank: each rank of a training job on one device, or on none
* node: the exporter or the node as a whole
"""

INSTANCE_LABEL = "gpu_instance"
DEVICE_LABELS = ("gpu", "uuid")
SHARE_LABELS = (*DEVICE_LABELS, INSTANCE_LABEL)
"""The last one is omitted for a whole GPU."""
RANK_LABELS = ("training_job", "rank", "uuid", INSTANCE_LABEL)
"""The last two are omitted without such a device."""

LABELS_OF: Mapping[Scope, tuple[str, ...]] = {
    "gpu": DEVICE_LABELS,
    "board": DEVICE_LABELS,
    "share": SHARE_LABELS,
    "reading": SHARE_LABELS,
    "rank": RANK_LABELS,
    "node": (),
}
"""The labels that name what a family describes; they precede the family's own."""


@dataclass(frozen=True, slots=True)
class Label:
    """A family's own label, with listed values or open."""

    name: str
    values: tuple[str, ...] = ()
    meaning: str = ""
    full_values: tuple[str, ...] = ()
    """The `values` that level core omits."""
    core_values: tuple[str, ...] = ()
    """The only values of an open label at level core; empty for all."""

    def core(self) -> Label:
        """Return the label as level core serves it."""
        kept = tuple(value for value in self.values if value not in self.full_values)
        return replace(self, values=kept or self.core_values)


def text(value: object) -> str:
    """Return a label value; None is empty."""
    return "" if value is None else str(value)


def flag(value: bool | None) -> int | None:
    """Return 1 or 0."""
    return None if value is None else int(value)


def lower(bounds: Mapping[str, Bounds]) -> dict[str, float]:
    """Return the lower bound of each."""
    return {name: each.lower for name, each in bounds.items()}


def upper(bounds: Mapping[str, Bounds]) -> dict[str, float]:
    """Return the upper bound of each."""
    return {name: each.upper for name, each in bounds.items()}
