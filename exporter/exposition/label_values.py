# SPDX-License-Identifier: Apache-2.0
"""How what a snapshot holds becomes label values and sample values."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.model.snapshot import Bounds


def text(value: object) -> str:
    """Return a label value; what is not known is empty."""
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
