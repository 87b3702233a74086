# SPDX-License-Identifier: Apache-2.0
"""The charts of a GPU's page, which static/charts.js draws, and their tables."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from exporter.model.reading import THROTTLE_REASONS
from exporter.web.history import Columns, Series
from exporter.web.live.rounding import known
from exporter.web.page.document import data_block, table
from exporter.web.wording.numbers import clock_time, duration, fixed, iso_time, percent, si
from exporter.web.wording.phrases import NOT_KNOWN, PARTS, throttle_words, throttled_by
from exporter.web.wording.state import HIGH_STALL_RATIO, MODERATE_STALL_RATIO

TABLE_STEP_SECONDS = 30.0
"""From one row of a table to the next."""
HOLE_SECONDS = 3.0
"""The longest time that one sample is counted for."""
FORMATS: dict[str, Callable[[float], str]] = {
    "": percent,
    "W": lambda value: f"{fixed(value, 0)} W",
    "Hz": lambda value: si(value, "Hz"),
}
"""By unit; static/charts.js formats alike."""


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
    """The label of a lower bound that is shown beside an upper one."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart and the note below it."""

    name: str
    heading: str
    lines: tuple[Line, ...]
    unit: Literal["", "W", "Hz"] = ""
    """Empty for ratios."""
    note: str = ""
    stack: bool = False
    """Whether the lines are stacked, in this order."""
    band: tuple[str, ...] = ()
    """Columns between which the area is filled."""
    marks: tuple[float, ...] = ()
    """Values at which a horizontal line is drawn."""
    reasons: tuple[str, ...] = ()
    """Throttle reasons by bit: throttled times are shaded, and the table has a column for them."""


CHARTS = (
    Chart(
        "use",
        "Utilization and saturation",
        (
            Line("utilization", "utilization", "s0"),
            Line("saturation_lower", "saturation", "good", apart="saturation, at least"),
            Line("saturation_upper", "saturation, at most", "good", (4, 4)),
        ),
        band=("saturation_upper", "saturation_lower"),
    ),
    Chart(
        "parts",
        "Where the time goes",
        (
            Line("saturated", PARTS["saturated"], "good"),
            Line("clock", PARTS["clock"], "clock"),
            Line("unsaturated", PARTS["unsaturated"], "s0"),
            Line("narrow", PARTS["narrow"], "s5"),
            Line("idle", PARTS["idle"], "s7"),
        ),
        note=f"From the bottom to the top: {'; '.join(PARTS.values())}.",
        stack=True,
    ),
    Chart(
        "pipes",
        "Pipes, SMs and memory",
        (
            Line("tensor", "tensor", "s6"),
            Line("dram", "DRAM", "s0", (8, 3)),
            Line("sm", "SMs busy", "s7", (2, 3)),
            Line("fp32", "FP32", "s2", (4, 4)),
            Line("fp16", "FP16", "s3", (10, 3, 2, 3)),
            Line("fp64", "FP64", "s1", (6, 2)),
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
        reasons=tuple(map(throttle_words, THROTTLE_REASONS)),
    ),
    Chart(
        "power",
        "Power",
        (Line("power", "power", "s0"), Line("power_limit", "limit", "s7", (4, 4))),
        unit="W",
    ),
)


def _figure(chart: Chart, table: str, note: str) -> str:
    heading = chart.heading
    name = ' id="throttled"' if chart.reasons else ""
    return (
        f'<figure class="card" id="chart-{chart.name}"><figcaption><h2>{heading}</h2></figcaption>'
        f'<div class="canvas"></div><p class="note"{name}>{note}</p>'
        f'<details><summary>As a table</summary><div class="scroll" id="table-{chart.name}" '
        f'tabindex="0" role="region" aria-label="{heading}, as a table">{table}</div></details>'
        "</figure>"
    )


def _known(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return known(**{name: value or None for name, value in fields if name != "heading"})


def gpu_charts(series: Series | None) -> str:
    """Return the charts, their tables, newest sample first, and their definitions for scripts."""
    timestamps, columns = ([], {}) if series is None else series
    figures = [
        _figure(
            chart,
            _table(chart, timestamps, columns),
            _throttled(timestamps, columns.get("throttled", ())) if chart.reasons else "",
        )
        for chart in CHARTS
    ]
    charts = [asdict(chart, dict_factory=_known) for chart in CHARTS]
    return "\n".join([*figures, data_block("charts", charts)])


def _is_known(column: str, columns: Columns) -> bool:
    """Return whether a line has values; an upper bound that equals the lower one is left out."""
    values = columns.get(column, [])
    lower = columns.get(column.replace("_upper", "_lower")) if "_upper" in column else None
    below = lower or [None] * len(values)
    return any(value not in (None, low) for value, low in zip(values, below, strict=True))


def _throttled(timestamps: Sequence[float], throttled: Sequence[float | None]) -> str:
    """Return the time throttled by reason; a sample covers the time before it.

    Reasons that hold at once are named together: the times add up to all of the throttled time.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for at, bits in enumerate(throttled):
        passed = timestamps[at] - timestamps[at - 1] if at else 0.0
        if reasons := " with ".join(throttled_by(int(bits or 0))):
            seconds[reasons] += min(HOLE_SECONDS, passed)
    if not any(bits is not None for bits in throttled):
        return ""
    said = ", ".join(f"{reasons} for {duration(time)}" for reasons, time in seconds.items())
    return f"Throttled (shaded): {said}." if said else "Nothing throttled the clock."


def _reasons(bits: float | None) -> str:
    return NOT_KNOWN if bits is None else ", ".join(throttled_by(int(bits))) or "nothing"


def _table(chart: Chart, timestamps: Sequence[float], columns: Columns) -> str:
    shown = [line for line in chart.lines if _is_known(line.column, columns)]
    if not shown:
        return "<table><tbody><tr><td>Nothing is known of it.</td></tr></tbody></table>"
    bounds = any(line.column.endswith("_upper") for line in shown)
    names = ["Time", *((bounds and line.apart) or line.label for line in shown)]
    throttled = columns.get("throttled", []) if chart.reasons else []
    names += ["throttled by"] if throttled else []
    rows, before = [], math.inf
    for index in range(len(timestamps) - 1, -1, -1):
        time = timestamps[index]
        if time > before:
            continue
        before = time - TABLE_STEP_SECONDS
        values = [columns[line.column][index] for line in shown]
        cells = [NOT_KNOWN if value is None else FORMATS[chart.unit](value) for value in values]
        cells += [_reasons(bits) for bits in throttled[index : index + 1]]
        rows.append([f'<time datetime="{iso_time(time)}">{clock_time(time)}</time>', *cells])
    return table(names, rows)
