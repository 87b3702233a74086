# SPDX-License-Identifier: Apache-2.0
"""The report as text and as CSV; its columns and sentences are the page's, too."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter

from exporter.cli.report.figures import Figures
from exporter.cli.terminal.screen import Screen, safe
from exporter.cli.terminal.table import UNKNOWN, Cell, Column, laid_out
from exporter.web.wording.facts import WIDEST_BAND_RATIO
from exporter.web.wording.numbers import duration, iso_time, percent, plain, span

STATES = {"used": "used", "held_idle": "held idle", "unopened": "never opened", "free": "free"}
LOST_TO = ("idle", "input", "communication", "latency", "clock")
"""Limiters that keep a GPU below what it could do."""
NOTABLE_RATIO, WHOLE_RATIO, JOULES_PER_KWH = 0.005, 0.99, 3.6e6
"""Parts of the allocated GPU-hours: the least that is shown, and the least that counts as all."""
LISTS = ("LOST TO", "STALLED BY", "CAUSES")
_TEXTS = ("OWNER", "NAMESPACE", "USER", "JOB", "NODE", "MODEL", "INSTANCE", *LISTS)

Text = Callable[[Figures], str | None]
"""Returns what a column shows of a row; None is "not known"."""


def amount(value: float) -> str:
    """Return an amount with three digits or more: 0.04, 12.3, 1,234."""
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def _number(name: str, unit: float = 1.0) -> Text:
    return lambda row: amount(row[name] / unit) if name in row else None


def _saturation(row: Figures) -> str | None:
    lower, upper = (row.get(f"saturation_{bound}_ratio", 2.0) for bound in ("lower", "upper"))
    return span(lower, upper) if upper <= min(1.0, lower + WIDEST_BAND_RATIO) else None


def _largest(name: str, row: Figures, shown: tuple[str, ...] = ()) -> str | None:
    """Return the three largest parts: "idle 12.3, input 4.00"; "data 1.00 to 4.00"."""
    most = row.get(f"{name}_gpu_hours", {})
    lower = row.get(f"{name.replace('upper', 'lower')}_gpu_hours", {})
    notable = NOTABLE_RATIO * row.get("allocated_gpu_hours", 0.0)
    parts = []
    for part, hours in most.items():
        if hours > notable and part in (shown or most):
            low, high = amount(lower.get(part, 0.0)), amount(hours)
            parts.append(f"{plain(part)} {high if low == high else f'{low} to {high}'}")
    return ", ".join(parts[:3]) or None


def columns(found: Figures, *, worst: bool = False) -> Mapping[str, Text]:
    """Return the columns of the rows, or of the GPUs that lost most, by title."""
    by, cost = found["by"].upper(), f"COST {found['currency']}".rstrip()
    whose: Text = lambda row: row["name"] or "(none)"  # noqa: E731
    lost = {"HELD IDLE": _number("held_idle_gpu_hours"), "UNOPENED": _number("unopened_gpu_hours")}
    if worst:
        where = {title: itemgetter(title.lower()) for title in ("INSTANCE", "GPU")}
        return {by: whose, **where, **lost, cost: _number("lost_cost")}
    return {
        by: whose,
        "ALLOCATED": _number("allocated_gpu_hours"),
        "USED": _number("used_gpu_hours"),
        **lost,
        "SAT": _saturation,
        "LOST TO": lambda row: _largest("limited", row, LOST_TO),
        "STALLED BY": partial(_largest, "stalled_upper"),
        "CAUSES": partial(_largest, "cause"),
        "kWh": _number("energy_joules", JOULES_PER_KWH),
        cost: _number("cost"),
    }


def sentences(found: Figures) -> Iterator[str]:
    """Yield the total, and the notes on the numbers, a line each."""
    total, length, ratio = found["total"], found["end"] - found["start"], found["observed_ratio"]
    hours = {word: total.get(f"{state}_gpu_hours") for state, word in STATES.items()}
    parts = [f"{amount(each)} {word}" for word, each in hours.items() if each is not None]
    yield f"GPUs: {found['gpus']}, {iso_time(found['start'])} to {iso_time(found['end'])}"
    yield f"GPU-hours: {', '.join(parts)}"
    if ratio < WHOLE_RATIO:
        seen, of = duration(ratio * length), duration(length)
        yield f"observed {seen} of {of} ({percent(ratio)}): Prometheus has nothing of the rest"
    if integrated := total.get("energy_joules_from_power"):
        part = percent(integrated / total["energy_joules"])
        yield f"{part} of the energy is power x time: those GPUs have no energy counter"
    priced, allocated = total.get("priced_gpu_hours"), total.get("allocated_gpu_hours", 0.0)
    if priced is not None and priced < WHOLE_RATIO * allocated:
        of = f"{amount(priced)} of {amount(allocated)} allocated GPU-hours"
        yield f"the cost is of {of}: the other GPU models have no price"


def table(found: Figures, screen: Screen) -> str:
    """Return the report as text."""
    lines = [*map(safe, sentences(found)), "", *_laid_out(found, screen)]
    if found["worst"]:
        lines += ["", "held idle or never opened most", *_laid_out(found, screen, worst=True)]
    return "".join(f"{line}\n" for line in lines)


def _laid_out(found: Figures, screen: Screen, *, worst: bool = False) -> Iterator[str]:
    made = [
        Column(title, partial(_cell, text), title in LISTS, most=48, right=title not in _TEXTS)
        for title, text in columns(found, worst=worst).items()
    ]
    return laid_out(made, found["worst"] if worst else [*found["rows"], found["total"]], screen)


def _cell(text: Text, row: Figures) -> Cell:
    return UNKNOWN if (said := text(row)) is None else Cell(said)


def as_csv(found: Figures) -> str:
    """Return a line for each row; limited_gpu_hours.idle is the number of one limiter."""
    rows = [
        {
            f"{name}.{part}" if part else name: each
            for name, value in row.items()
            for part, each in (value.items() if isinstance(value, dict) else [("", value)])
        }
        # Else a spreadsheet evaluates a name that begins as a formula.
        | {"name": re.sub("^(?=[=+@-])", "'", row["name"])}
        for row in found["rows"]
    ]
    written = io.StringIO()
    writer = csv.DictWriter(written, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()
