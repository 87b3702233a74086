# SPDX-License-Identifier: Apache-2.0
"""Large numbers side by side in one panel: their names stand inside, where no title is cut off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.model import Numbers, Override, Panel, Property, Query, Step, Values


@dataclass(frozen=True, slots=True)
class Number:
    """One number: its name, what to conclude from it, and how it is written."""

    name: str
    meaning: str
    expression: str
    unit: str = "none"
    decimals: int = 0
    color: str = "text"
    steps: tuple[Step, ...] = ()
    """The colour is that of the value instead."""


def numbers(
    title: str,
    description: str,
    items: Sequence[Number],
    width: int = 24,
    size: int = 38,
    max_points: int | None = None,
) -> Panel:
    """Return a panel of numbers; its description ends with the list of what they mean."""
    meanings = "\n".join(f"- **{item.name}**: {item.meaning}" for item in items)
    return Panel(
        title,
        f"{description}\n\n{meanings}",
        Numbers("value_and_name", size=size, name_size=14),
        Values("none", no_value="no reading"),
        tuple(Query(item.expression, item.name, instant=True) for item in items),
        width=width,
        height=4,
        overrides=tuple(Override("byName", item.name, _properties(item)) for item in items),
        max_points=max_points,
    )


def _properties(item: Number) -> tuple[Property, ...]:
    steps = [{"value": value, "color": color} for value, color in item.steps]
    look: tuple[Property, ...] = (("color", {"mode": "fixed", "fixedColor": item.color}),)
    if steps:
        look = (
            ("color", {"mode": "thresholds"}),
            ("thresholds", {"mode": "absolute", "steps": steps}),
        )
    return (("unit", item.unit), ("decimals", item.decimals), *look)
