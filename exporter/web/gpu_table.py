# SPDX-License-Identifier: Apache-2.0
"""The table of the node view: one row a GPU or GPU instance, and the empty row of the browser."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from urllib.parse import quote

from exporter.web.facts import GLYPHS, Facts, Row, facts
from exporter.web.words import clock_time, iso_time

COLUMNS = (
    "GPU",
    "State",
    "Utilization, with saturation inside",
    "Data stall",
    "Memory",
    "Power",
    "Idle, holder",
)
_PLACES = (
    *("title", "name", "word", "limit", "note", "reason", "ago", "used", "saturated"),
    *("stall", "level", "memory", "power", "idle", "holder"),
)
_ROW = """\
<tr role="row" class="{classes}" data-key="{key}">
<th role="rowheader" scope="row">
 <a data-f="title" href="{href}">{title}</a><small data-f="name">{name}</small></th>
<td role="cell" class="state"{span}>
 <span class="badge"><span aria-hidden="true" data-f="glyph">{glyph}</span>
  <b data-f="word">{word}</b></span>
 <small data-f="limit">{limit}</small>
 <small class="reason" data-f="reason">{reason}</small>
 <small class="reason"><span data-f="ago">{ago}</span>
  <time data-f="at"{datetime}>{at}</time></small>
 <small class="note" data-f="note">{note}</small></td>
<td role="cell" class="use"{hidden}><span class="cap" aria-hidden="true">Use</span>{use_bar}
 <small><span data-f="used">{used}</span> <span data-f="saturated">{saturated}</span></small></td>
<td role="cell" class="stall"{hidden}><span class="cap" aria-hidden="true">Data stall</span>
 <span class="value" data-f="stall">{stall}</span> <small data-f="level">{level}</small></td>
<td role="cell" class="load"{hidden}><span class="cap" aria-hidden="true">Memory</span>{memory_bar}
 <small data-f="memory">{memory}</small></td>
<td role="cell" class="load"{hidden}><span class="cap" aria-hidden="true">Power</span>{power_bar}
 <small data-f="power">{power}</small></td>
<td role="cell" class="idle"{hidden}><span class="cap" aria-hidden="true">Idle</span>
 <span class="value" data-f="idle">{idle}</span><small data-f="holder">{holder}</small></td>
</tr>
"""
_BAR = (
    '<svg class="bar {kind}" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
    '<rect class="track" width="100" height="10"/>{rects}</svg>'
)
_RECT = '<rect data-bar="{name}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'
_NOTHING = Facts(words={"title": "GPU"}, bars={}, tone="neutral")
_NO_BAR = (0.0, 0.0)


def gpu_address(key: str) -> str:
    """Return the address of a row's own page."""
    uuid, _, instance = key.partition("/")
    return f"/gpu/{quote(uuid, safe='')}" + (f"?instance={instance}" if instance else "")


def _rect(name: str, bar: tuple[float, float], y: float = 0.0, height: float = 10.0) -> str:
    start, end = (min(1.0, max(0.0, ratio)) * 100 for ratio in bar)
    x = round(start, 1)
    return _RECT.format(name=name, x=x, y=y, width=round(end - x, 1), height=height)


def _bars(bars: Mapping[str, tuple[float, float]]) -> dict[str, str]:
    lower, upper = bars.get("saturated", _NO_BAR)
    use = (
        _rect("used", bars.get("used", _NO_BAR))
        + _rect("band", (lower, upper), 2.5, 5.0)
        + _rect("saturated", (0.0, lower), 2.5, 5.0)
    )
    return {
        "use_bar": _BAR.format(kind="thick", rects=use),
        "memory_bar": _BAR.format(kind="thin", rects=_rect("memory", bars.get("memory", _NO_BAR))),
        "power_bar": _BAR.format(kind="thin", rects=_rect("power", bars.get("power", _NO_BAR))),
    }


def _html(key: str, what: Facts) -> str:
    classes = {
        "row": True,
        f"tone-{what.tone}": True,
        f"level-{what.stall_level}": bool(what.stall_level),
        "down": not what.up,
        "divided": what.divided,
    }
    words = {**dict.fromkeys(_PLACES, ""), **what.words}
    return _ROW.format(
        **{place: escape(word) for place, word in words.items()},
        **_bars(what.bars),
        classes=" ".join(name for name, holds in classes.items() if holds),
        key=escape(key),
        href=escape(gpu_address(key)),
        glyph=GLYPHS[what.tone],
        at="" if what.at is None else clock_time(what.at),
        datetime="" if what.at is None else f' datetime="{iso_time(what.at)}"',
        span="" if what.up else ' colspan="6"',
        hidden="" if what.up else " hidden",
    )


def gpu_table(rows: Mapping[str, Row], now: float) -> str:
    """Return the table, and the template of a row that the browser fills."""
    heads = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in COLUMNS)
    body = "".join(_html(key, facts(row, now)) for key, row in rows.items())
    return (
        '<table id="gpus" role="table" class="gpus" aria-labelledby="gpus-title">'
        f'<thead role="rowgroup"><tr role="row">{heads}</tr></thead>\n'
        f'<tbody role="rowgroup">\n{body}</tbody></table>\n'
        f'<template id="row">{_html("", _NOTHING)}</template>\n'
    )
