# SPDX-License-Identifier: Apache-2.0
"""The content of ``/gpu/{uuid}``: one GPU or GPU instance now, over 15 minutes, and what it is."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from exporter.snapshot import Gpu
from exporter.specs import SpecBook
from exporter.web.facts import facts, title
from exporter.web.gpu_facts import gpu_facts
from exporter.web.gpu_table import gpu_address, gpu_table
from exporter.web.node_page import roofline_figure
from exporter.web.words import product_name

CHARTS = (
    ("use", "Utilization and saturation"),
    ("parts", "Where the time goes"),
    ("pipes", "Pipes, SMs and memory"),
    ("stall", "Data stall"),
    ("clock", "SM clock, and what holds it down"),
    ("power", "Power"),
)
"""The charts by name; static/charts.js says what is in them."""


def _chart(name: str, heading: str) -> str:
    return (
        f'<figure class="card series" id="chart-{name}"><figcaption><h2>{heading}</h2></figcaption>'
        '<div class="canvas"></div><p class="note"></p>'
        '<details><summary>As a table</summary><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{heading}, as a table"><table></table></div></details></figure>'
    )


def _neighbours(rows: Mapping[str, Mapping[str, Any]], key: str) -> str:
    """Return links to all GPUs, and to the GPUs before and after this one."""
    keys = list(rows)
    at = keys.index(key)
    links = ['<a href="/">All GPUs</a>']
    if at > 0:
        before = keys[at - 1]
        links.append(f'<a href="{escape(gpu_address(before))}">← {title(rows[before])}</a>')
    if at + 1 < len(keys):
        after = keys[at + 1]
        links.append(f'<a href="{escape(gpu_address(after))}">{title(rows[after])} →</a>')
    return f'<nav aria-label="GPUs">{" ".join(links)}</nav>'


def rows_of(rows: Mapping[str, Mapping[str, Any]], key: str) -> dict[str, Mapping[str, Any]]:
    """Return a row, with the instances of a GPU that is divided."""
    return {
        name: row
        for name, row in rows.items()
        if name == key or (rows[key].get("mig") and name.startswith(f"{key}/"))
    }


def gpu_content(view: Mapping[str, Any], key: str, gpu: Gpu, specs: SpecBook) -> str:
    """Return the content of the page of the row `key`, which is one of `view`."""
    row, now = view["rows"][key], view.get("timestamp", 0.0)
    said = facts(row, now).words
    state = ", ".join(filter(None, (said["word"], said.get("limit"), said.get("reason"))))
    charts = "\n".join(_chart(name, heading) for name, heading in CHARTS)
    return f"""{_neighbours(view["rows"], key)}
<h1 id="headline">{escape(title(row))} <small>{escape(product_name(row["name"]))}</small></h1>
<p id="totals" aria-live="polite">{escape(state)}</p>
<div id="gpu" data-key="{escape(key)}">
<section class="card wide" aria-labelledby="gpus-title"><h2 id="gpus-title">Now</h2>
{gpu_table(rows_of(view["rows"], key), now)}</section>
<section class="card wide" id="jobs" aria-labelledby="jobs-title" hidden>
<h2 id="jobs-title">Training jobs on it: where a step goes</h2><div></div></section>
<section class="card" id="chart" aria-labelledby="roofline-title">
<h2 id="roofline-title">Roofline</h2>
{roofline_figure({key: row})}</section>
{charts}
<p class="wide" id="means"></p>
<p class="wide" id="absent" hidden></p>
<div class="wide" id="facts">
{gpu_facts(gpu, specs)}
</div>
</div>"""
