# SPDX-License-Identifier: Apache-2.0
"""The charts of the view of one GPU: what is in each; static/charts.js draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from exporter.web.history import Columns, Series
from exporter.web.live.rounding import known
from exporter.web.page.document import data_block
from exporter.web.wording.numbers import clock_time, fixed, percent, si
from exporter.web.wording.state import HIGH_STALL_RATIO, MODERATE_STALL_RATIO

TABLE_SECONDS = 330.0
TABLE_STEP_SECONDS = 60.0
"""Of the tables as the server writes them; a script writes more."""
FORMATS: dict[str, Callable[[float], str]] = {
    "": percent,
    "W": lambda value: f"{fixed(value, 0)} W",
    "Hz": lambda value: si(value, "Hz"),
}
"""As static/charts.js does."""


@dataclass(frozen=True, slots=True)
class Line:
    """One column of the history."""

    column: str
    label: str
    colour: str
    """A variable of page.css."""
    dash: tuple[int, ...] = ()
    """Pixels on and off: lines differ by more than their colour."""
    apart: str = ""
    """The label of a lower bound while an upper one is shown as well."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart, and what is said below it."""

    name: str
    heading: str
    lines: tuple[Line, ...]
    unit: Literal["", "W", "Hz"] = ""
    """Without one the lines are ratios."""
    note: str = ""
    stack: bool = False
    """One upon the other, in this order."""
    band: tuple[str, ...] = ()
    """Columns between which the area is filled."""
    marks: tuple[float, ...] = ()
    """Values with a line across."""
    reasons: bool = False
    """Times in which something throttles the clock are shaded."""


CHARTS = (
    Chart(
        "use",
        "Utilization and saturation",
        (
            Line("utilization", "utilization", "s0"),
            Line("saturation_lower", "saturation", "s1", apart="saturation, at least"),
            Line("saturation_upper", "saturation, at most", "s1", (4, 4)),
        ),
        band=("saturation_upper", "saturation_lower"),
    ),
    Chart(
        "parts",
        "Where the time goes",
        (
            Line("saturated", "at its limit", "s1"),
            Line("clock", "lost to the clock", "s3"),
            Line("unsaturated", "busy, below its limit", "s0"),
            Line("narrow", "too few SMs busy", "s2"),
            Line("idle", "idle", "s7"),
        ),
        note="From the bottom to the top: at its limit; lost to the clock; busy, below its limit; "
        "too few SMs busy; idle.",
        stack=True,
    ),
    Chart(
        "pipes",
        "Pipes, SMs and memory",
        (
            Line("tensor", "tensor", "s1"),
            Line("dram", "DRAM", "s0", (8, 3)),
            Line("sm", "SMs busy", "s7", (2, 3)),
            Line("fp32", "FP32", "s2", (4, 4)),
            Line("fp16", "FP16", "s3", (10, 3, 2, 3)),
            Line("fp64", "FP64", "s6", (6, 2)),
            Line("int", "INT", "s5", (1, 4)),
        ),
    ),
    Chart(
        "stall",
        "Data stall",
        (
            Line("wait", "host waits for data", "s0", (4, 4)),
            Line("stall", "GPU idle for it", "s1"),
            Line("stall_lower", "at least", "s1", (2, 3)),
            Line("stall_upper", "at most", "s1", (8, 3)),
        ),
        note=f"Lines at {percent(MODERATE_STALL_RATIO)} (worth a look) and "
        f"{percent(HIGH_STALL_RATIO)} (the loader is the bottleneck).",
        marks=(MODERATE_STALL_RATIO, HIGH_STALL_RATIO),
    ),
    Chart(
        "clock",
        "SM clock, and what throttles it",
        (Line("sm_clock", "SM clock", "s0"),),
        unit="Hz",
        reasons=True,
    ),
    Chart(
        "power",
        "Power",
        (Line("power", "power", "s1"), Line("power_limit", "limit", "s7", (4, 4))),
        unit="W",
    ),
)


def _figure(chart: Chart, table: str) -> str:
    heading = chart.heading
    return (
        f'<figure class="card" id="chart-{chart.name}"><figcaption><h2>{heading}</h2></figcaption>'
        '<div class="canvas"></div><p class="note"></p>'
        '<details><summary>As a table</summary><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{heading}, as a table">{table}</div></details></figure>'
    )


def _known(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return known(**{name: value or None for name, value in fields if name != "heading"})


def gpu_charts(series: Series | None) -> str:
    """Return the places of the charts, their tables, and for the script what is in them.

    The tables hold the last minutes of `series`.
    """
    timestamps, columns = ([], {}) if series is None else series
    figures = [_figure(chart, _table(chart, timestamps, columns)) for chart in CHARTS]
    charts = [asdict(chart, dict_factory=_known) for chart in CHARTS]
    return "\n".join([*figures, data_block("charts", charts)])


def _is_known(column: str, columns: Columns) -> bool:
    """Return whether a line is known; an upper bound that is always the lower one adds nothing."""
    values = columns.get(column, [])
    lower = columns.get(column.replace("_upper", "_lower")) if "_upper" in column else None
    below = lower or [None] * len(values)
    return any(value not in (None, low) for value, low in zip(values, below, strict=True))


def _table(chart: Chart, timestamps: Sequence[float], columns: Columns) -> str:
    shown = [line for line in chart.lines if _is_known(line.column, columns)]
    if not shown:
        return "<table><tbody><tr><td>Nothing is known of it.</td></tr></tbody></table>"
    bounds = any(line.column.endswith("_upper") for line in shown)
    names = ["Time", *((bounds and line.apart) or line.label for line in shown)]
    heads = "".join(f'<th scope="col">{each}</th>' for each in names)
    rows, before = "", math.inf
    for index in range(len(timestamps) - 1, -1, -1):
        time = timestamps[index]
        if time > before:
            continue
        before = time - TABLE_STEP_SECONDS
        values = [columns[line.column][index] for line in shown]
        cells = ["not known" if value is None else FORMATS[chart.unit](value) for value in values]
        rows += (
            f'<tr><th scope="row">{clock_time(time)}</th><td>{"</td><td>".join(cells)}</td></tr>'
        )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
