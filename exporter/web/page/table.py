# SPDX-License-Identifier: Apache-2.0
"""The table of GPUs and MIG instances, and the template of its rows for scripts."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from exporter.web.live.rows import Row, values_of
from exporter.web.page.document import data_block
from exporter.web.wording.numbers import clock_time, iso_time

COLUMNS = {
    "gpu": "GPU",
    "trouble": "State",
    "use": "Utilization, saturation",
    "stall": "Data stall",
    "memory": "Memory",
    "power": "Power",
    "idle": "Idle, holder",
}
"""By the name that scripts sort it by: its head."""
_PLACES = (
    *("title", "name", "glyph", "word", "limit", "note", "reason", "ago", "used", "saturated"),
    *("stall", "level", "memory", "power", "idle", "holder"),
)
_ROW = """\
<tr role="row" class="row {look}" data-key="{key}">
<th role="rowheader" scope="row">
 <a data-f="title" href="{href}">{title}</a>
 <small data-f="name" title="{name}">{name}</small></th>
<td role="cell" class="state"{span}>
 <span class="badge"><span aria-hidden="true" data-f="glyph">{glyph}</span>
  <b data-f="word">{word}</b></span>
 <small data-f="limit" title="{limit}">{limit}</small>
 <small class="reason" data-f="reason" title="{reason}">{reason}</small>
 <small class="reason"><span data-f="ago">{ago}</span>
  <time data-f="at"{datetime}>{at}</time></small>
 <small class="note" data-f="note" title="{note}">{note}</small></td>
<td role="cell" class="use" data-cap="Use"{hidden}>{use_bar}
 <small><span data-f="used">{used}</span>
  <span data-f="saturated" title="{saturated}">{saturated}</span></small></td>
<td role="cell" class="stall" data-cap="Data stall"{hidden}>
 <span class="value" data-f="stall">{stall}</span> <small data-f="level">{level}</small></td>
<td role="cell" class="load" data-cap="Memory"{hidden}>{memory_bar}
 <small data-f="memory">{memory}</small></td>
<td role="cell" class="load" data-cap="Power"{hidden}>{power_bar}
 <small data-f="power">{power}</small></td>
<td role="cell" class="idle" data-cap="Idle"{hidden}>
 <span class="value" data-f="idle">{idle}</span>
 <small data-f="holder" title="{holder}">{holder}</small></td>
</tr>
"""
_BAR = (
    '<svg class="bar {kind}" aria-hidden="true">'
    '<rect class="track" width="100%" height="100%"/>{rects}</svg>'
)
_RECT = '<rect data-bar="{name}" x="{x:g}%" y="{y}%" width="{width:g}%" height="{height}%"/>'
_HATCH = (
    '<pattern id="hatch" patternUnits="userSpaceOnUse" width=".4rem" height=".4rem" '
    'patternTransform="rotate(45)"><rect width=".2rem" height=".4rem"/></pattern>'
)
"""Marks the band between the bounds of a bar."""
_KEY = "".join(
    f'<li class="{bar}"><svg aria-hidden="true">'
    f'<rect data-bar="{bar}" width="100%" height="100%"/></svg> {said}</li>'
    for bar, said in (
        ("used", "utilization"),
        ("saturated", "saturation"),
        ("band", "between its bounds"),  # hidden by the style where there is none
    )
)
_NOTHING: Row = {"state": "up", "look": "", "href": "", "words": {"title": "GPU"}}


def _rect(name: str, to: float, begin: float = 0.0, *, inner: bool = False) -> str:
    start, end = (min(1.0, max(0.0, ratio)) * 100 for ratio in (begin, to))
    x = round(start, 1)
    y, height = (25, 50) if inner else (0, 100)
    return _RECT.format(name=name, x=x, y=y, width=round(end - x, 1), height=height)


def _bars(row: Row) -> dict[str, str]:
    values = values_of(row)
    lower = values.get("saturation_lower", 0.0)
    use = (
        _rect("used", values.get("utilization", 0.0))
        + _rect("band", values.get("saturation_upper", lower), lower, inner=True)
        + _rect("saturated", lower, inner=True)
    )
    limit = values.get("power_limit")
    power = values.get("power", 0.0) / limit if limit else 0.0
    return {
        "use_bar": _BAR.format(kind="thick", rects=use),
        "memory_bar": _BAR.format(kind="thin", rects=_rect("memory", row.get("memory_ratio", 0.0))),
        "power_bar": _BAR.format(kind="thin", rects=_rect("power", power)),
    }


def _html(key: str, row: Row, root: str) -> str:
    up, since = row["state"] == "up", row.get("since")
    words = {**dict.fromkeys(_PLACES, ""), **row["words"]}
    return _ROW.format(
        **{place: escape(word) for place, word in words.items()},
        **_bars(row),
        look=row["look"],
        key=escape(key),
        href=root + escape(row["href"]),
        at="" if since is None else clock_time(since),
        datetime="" if since is None else f' datetime="{iso_time(since)}"',
        span="" if up else ' colspan="6"',
        hidden="" if up else " hidden",
    )


def gpu_table(title: str, means: str, rows: Mapping[str, Row], root: str = "./") -> str:
    """Return the table below its title and the window of its `means`; for scripts, a row."""
    heads = "".join(
        f'<th role="columnheader" scope="col" data-sort="{name}">{text}</th>'
        for name, text in COLUMNS.items()
    )
    body = "".join(_html(key, row, root) for key, row in rows.items())
    return (
        f'<div id="heads"><h2 id="gpus-title">{title}</h2><small id="window">{means}</small>\n'
        f'<ul class="legend" aria-label="What the bars show">{_KEY}</ul></div>\n'
        f'<svg class="unseen" width="0" height="0" aria-hidden="true">{_HATCH}</svg>'
        '<table id="gpus" role="table" class="gpus" aria-labelledby="gpus-title">'
        f'<thead role="rowgroup"><tr role="row">{heads}</tr></thead>\n'
        f'<tbody role="rowgroup">\n{body}</tbody></table>\n'
        f"{data_block('row', _html('', _NOTHING, root))}\n"
    )
