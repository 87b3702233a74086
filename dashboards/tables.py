# SPDX-License-Identifier: Apache-2.0
"""Tables: columns from several queries, each with a header, a unit and how its cells look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboards.model import Link, Override, Property, Query, Step, Table, Transformation
from dashboards.navigation import gpu_of_row
from dashboards.promql import LABELS

EMPTY_CELL = "-"
SHARE = "share"
"""The label of a column that names GPUs and MIG instances: 2, or 2/1."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: a label, or the value of a query."""

    header: str
    label: str = ""
    expression: str = ""
    bound: str = ""
    """What a value is that is none, but a bound: at least, at most."""
    unit: str = ""
    bar: str = ""
    """A colour: the value is drawn as a bar from 0 to 1 in it."""
    steps: tuple[Step, ...] = ()
    """The text is coloured by these."""
    texts: Mapping[str, tuple[str, str]] | None = None
    """By value the text that stands for it and its colour, which fills the cell."""
    decimals: int | None = None
    width: int | None = None
    link: Link | None = None


WHICH_GPU = (
    Column("Node", label="instance"),
    Column("GPU", label=SHARE, width=60, link=gpu_of_row()),
)
"""The columns that say which GPU a row is of, with a link to its page."""


def table(
    columns: Sequence[Column], sort_by: str | None = None
) -> tuple[Table, tuple[Query, ...], tuple[Transformation, ...], tuple[Override, ...]]:
    """Return chart, queries, transformations and overrides of a table.

    Every query has to give the same labels, or its rows do not merge with the others.
    """
    values = [column for column in columns if column.expression]
    named = any(column.label == SHARE for column in columns)
    queries = tuple(
        Query(
            _named(column.expression) if named else column.expression,
            column.bound or "__auto",
            instant=True,
            table=True,
        )
        for column in values
    )
    # One query alone calls its column "Value".
    names = ["Value"] if len(values) == 1 else [f"Value #{chr(65 + i)}" for i in range(len(values))]
    raw = dict(zip((column.header for column in values), names, strict=True))
    sources = [raw.get(column.header, column.label) for column in columns]
    # Links lead to a GPU by its index.
    hidden = {"Time", *LABELS.split(", ")} - {*sources, "gpu" if named else ""}
    organize = Transformation(
        "organize",
        {
            "excludeByName": dict.fromkeys(sorted(hidden), True),
            "includeByName": {},
            "indexByName": {name: index for index, name in enumerate(sources)},
            "renameByName": {
                name: column.header for name, column in zip(sources, columns, strict=True)
            },
        },
    )
    overrides = (
        # What the panel says while it has no row would be cut off in each cell without a value.
        Override("byRegexp", "/./", (("noValue", EMPTY_CELL),)),
        *((Override("byName", "gpu", (("custom.hidden", True),)),) if named else ()),
        *(
            Override("byName", column.header, properties)
            for column in columns
            if (properties := _properties(column))
        ),
    )
    merge = Transformation("merge", {})
    return Table(sort_by), queries, (merge, organize), overrides


def _named(expression: str) -> str:
    joined = f'label_join({expression}, "{SHARE}", "/", "gpu", "gpu_instance")'
    return f'label_replace({joined}, "{SHARE}", "$1", "{SHARE}", "(.+)/|/.*")'


def _properties(column: Column) -> tuple[Property, ...]:
    found: list[Property] = []
    if column.unit:
        found.append(("unit", column.unit))
    if column.decimals is not None:
        found.append(("decimals", column.decimals))
    if column.width is not None:
        found.append(("custom.width", column.width))
    if column.bar:
        gauge = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
        found += [
            ("custom.cellOptions", gauge),
            ("min", 0),
            ("max", 1),
            ("color", {"mode": "fixed", "fixedColor": column.bar}),
        ]
    if column.steps:
        steps = [{"value": value, "color": color} for value, color in column.steps]
        found += [
            ("thresholds", {"mode": "absolute", "steps": steps}),
            ("color", {"mode": "thresholds"}),
            ("custom.cellOptions", {"type": "color-text"}),
        ]
    if column.texts is not None:
        options = {
            value: {"text": text, "color": color, "index": index}
            for index, (value, (text, color)) in enumerate(column.texts.items())
        }
        found += [
            ("mappings", [{"type": "value", "options": options}]),
            ("custom.cellOptions", {"type": "color-background", "mode": "basic"}),
        ]
    if column.link is not None:
        found.append(("links", [{"title": column.link.title, "url": column.link.url}]))
    return tuple(found)
