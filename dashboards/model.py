# SPDX-License-Identifier: Apache-2.0
"""What a dashboard is made of, in our own words: queries, panels, rows, variables, links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Step = tuple[float | None, str]
"""From this value on, this colour; the first has None."""
Property = tuple[str, object]
"""A field option, as overrides name it, and its value."""

GRID_WIDTH = 24
SHARE = "GPU {{gpu}}/{{gpu_instance}}"
"""How a legend names a GPU or MIG instance: GPU 2, or GPU 2/1, as on the exporter's own page."""
OF_SHARE = f", {SHARE}"
"""The same behind what a series of the page of one GPU is; nothing where the GPU is whole."""
PLAIN: tuple[Step, ...] = ((None, "text"),)
"""Thresholds of values that are neither good nor bad: without any, Grafana paints them red."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression; `instant` asks for its value at the end of the range."""

    expression: str
    legend: str = "__auto"
    instant: bool = False
    table: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A link from a value, a panel or the head of a dashboard."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Override:
    """Options of the fields that a matcher (`byName`, `byRegexp`) finds."""

    matcher: Literal["byName", "byRegexp"]
    pattern: str
    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class Transformation:
    """A step between the queries and the chart."""

    name: str
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Values:
    """How values are written and coloured."""

    unit: str
    minimum: float | None = None
    maximum: float | None = None
    decimals: int | None = None
    color: str = ""
    """A colour mode, or a colour that all values have; unset, what fits the chart."""
    steps: tuple[Step, ...] = PLAIN
    texts: tuple[tuple[str, str, str], ...] = ()
    """Value, the text that stands for it and its colour."""
    no_value: str | None = None
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class Lines:
    """Values over time."""

    fill: int = 0
    width: int = 2
    stacked: Literal["none", "normal", "percent"] = "none"
    thresholds_drawn: bool = False
    soft_maximum: float | None = None
    """The axis reaches at least up to this value."""


@dataclass(frozen=True, slots=True)
class States:
    """One row of states over time for each series."""

    rows: int | None = None
    """More rows than this go to further pages."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """One large number, or several with their names."""

    text: Literal["value", "value_and_name", "name"] = "value"
    size: int | None = None
    """Of the value, in pixels; unset, as large as fits."""
    name_size: int | None = None


@dataclass(frozen=True, slots=True)
class Heat:
    """How much is in each band over time: a row of cells for each series, by its name."""


@dataclass(frozen=True, slots=True)
class Bars:
    """One horizontal bar for each series."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of the columns of all queries."""

    sort_by: str | None = None


@dataclass(frozen=True, slots=True)
class Points:
    """A chart of y over x on logarithmic scales."""

    series: tuple[Mapping[str, tuple[str, str]], ...]
    """For each group of series the matcher of `x`, `y`, `size` and `color`."""
    y_label: str


Chart = Lines | States | Numbers | Heat | Bars | Table | Points


WHOLE_GPUS = Transformation(
    "renameByRegex", {"regex": r"/(, GPU [0-9]+)?\/$/", "renamePattern": ""}
)
"""Takes the empty number of an instance off the names that SHARE and OF_SHARE give."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart with its place: width and height in grid units."""

    title: str
    description: str
    chart: Chart
    values: Values
    queries: tuple[Query, ...]
    width: int = 12
    height: int = 8
    overrides: tuple[Override, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    max_points: int | None = None
    time_from: str | None = None
    repeat: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A headline with the panels under it; closed, Grafana asks for them when it is opened."""

    title: str
    panels: tuple[Panel, ...]
    closed: bool = False
    repeat: str | None = None
    """The variable for each of whose chosen values there is such a row."""


@dataclass(frozen=True, slots=True)
class Variable:
    """What the reader chooses at the top of a dashboard."""

    name: str
    label: str
    query: str
    kind: Literal["datasource", "query", "custom", "textbox"] = "query"
    many: bool = True
    current: tuple[str, ...] = ()
    numeric: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page: panels of the first screen, then rows."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    top: tuple[Panel, ...]
    rows: tuple[Row, ...] = ()
    time_from: str = "now-30m"
    refresh: str = "15s"
    tags: tuple[str, ...] = field(default=("gpu", "roofline-exporter"))


def colored(colors: Mapping[str, str], pattern: str = "/^({name})(,|$)/") -> tuple[Override, ...]:
    """Return overrides that give each name its colour, with a MIG instance behind it or without."""
    return tuple(
        Override(
            "byRegexp",
            pattern.format(name=name),
            (("color", {"mode": "fixed", "fixedColor": color}),),
        )
        for name, color in colors.items()
    )
