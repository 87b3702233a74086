# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file, which loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from exporter.cli.report.figures import Figures
from exporter.cli.report.table import LISTS, STATES, amount, columns, sentences
from exporter.web.wording.numbers import iso_time

MOST_BARS = 20
STYLE = Path(__file__).parent / "report.css"
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>GPU report</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{style}</style></head><body><main><h1>GPU report</h1>
{body}</main></body></html>
"""
_KEYS = "".join(f'<span><i class="{state}"></i>{word}</span>' for state, word in STATES.items())
_KEY = f'<p class="keys">{_KEYS}</p>'
_SVG = '<svg role="img" aria-label="{}" viewBox="0 0 {:g} {:g}" preserveAspectRatio="none">{}</svg>'


def page(found: Figures) -> str:
    """Return the report as a document."""
    by = found["by"]
    sections = {
        "GPU-hours over time": _over_time(found["buckets"]),
        f"GPU-hours by {by}": _bars(found["rows"][:MOST_BARS]),
        "Held idle or never opened most": _table(found, found["worst"], worst=True),
        f"GPU-hours, kWh and cost by {by}": _table(found, [*found["rows"], found["total"]]),
    }
    body = "".join(f"<p>{escape(line)}</p>\n" for line in sentences(found)) + "".join(
        f"<section><h2>{title}</h2>{made}</section>\n" for title, made in sections.items()
    )
    return _PAGE.format(style=STYLE.read_text(encoding="utf-8"), body=body)


def _stack(row: Figures, most: float, x: int | None = None) -> str:
    """Return a part for each state, from left to right or, at `x`, upwards."""
    at, parts = 0.0, ""
    for state, word in STATES.items():
        hours = row.get(f"{state}_gpu_hours", 0.0)
        place = f'x="{at:g}" width="{hours:g}" height="1"'
        if x is not None:
            place = f'x="{x + 0.06}" width="0.88" y="{most - at - hours:g}" height="{hours:g}"'
        said = f"<title>{amount(hours)} GPU-hours {word}</title>"
        parts += f'<rect class="{state}" {place}>{said}</rect>'
        at += hours
    return parts


def _over_time(buckets: Sequence[Figures]) -> str:
    """Return a column for each bucket."""
    most = max(each.get("observed_gpu_hours", 0.0) for each in buckets)
    stacks = "".join(_stack(bucket, most, x) for x, bucket in enumerate(buckets))
    ends = "".join(f"<span>to {iso_time(buckets[which]['end'])}</span>" for which in (0, -1))
    svg = _SVG.format("GPU-hours over time", len(buckets), most, stacks)
    return f'{_KEY}<div class="tall">{svg}</div><p class="ends">{ends}</p>'


def _bars(rows: Sequence[Figures]) -> str:
    """Return a bar for each row."""
    most, parts = max(row["observed_gpu_hours"] for row in rows), [_KEY]
    for row in rows:
        name, hours = escape(row["name"] or "(none)"), amount(row["observed_gpu_hours"])
        parts.append(f'<p class="ends"><span>{name}</span><span>{hours}</span></p>')
        parts.append(_SVG.format(f"GPU-hours of {name}", most, 1, _stack(row, most)))
    return "".join(parts)


def _table(found: Figures, rows: Sequence[Figures], *, worst: bool = False) -> str:
    texts = columns(found, worst=worst)
    lines = [list(texts), *([text(row) or "-" for text in texts.values()] for row in rows)]
    kinds = [' class="list"' if title in LISTS else "" for title in texts]
    cells = [
        "".join(f"<td{kind}>{escape(said)}</td>" for kind, said in zip(kinds, line, strict=True))
        for line in lines
    ]
    body = "".join(f"<tr>{each}</tr>\n" for each in cells)
    return f'<div class="wide" tabindex="0"><table>{body}</table></div>'
