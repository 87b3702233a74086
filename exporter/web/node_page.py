# SPDX-License-Identifier: Apache-2.0
"""The content of ``/``: the sentence that matters most, the table of GPUs, the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from exporter.web.facts import title
from exporter.web.gpu_table import gpu_table
from exporter.web.words import bytes_rate, flops, intensity, percent

BASES = ("spec", "clock", "achievable")


def _list(name: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul data-c="{name}">{items}</ul>'


def problem_section(problem: Mapping[str, Any] | None) -> str:
    """Return why there is no GPU, what was tried and what to do; hidden where there is one."""
    what = problem or {"what": "", "tried": (), "do": ()}
    return (
        f'<section id="problem" aria-labelledby="problem-title"{"" if problem else " hidden"}>\n'
        f'<h2 id="problem-title">No GPU is up</h2>\n<p data-c="what">{escape(what["what"])}</p>\n'
        f"<h3>What was tried</h3>\n{_list('tried', what['tried'])}\n"
        f"<h3>What to do</h3>\n{_list('do', what['do'])}\n</section>"
    )


def point_words(row: Mapping[str, Any]) -> str:
    """Return where a row stands on the chart."""
    point, bounds = row.get("point"), row.get("point_bounds") or {}
    if point:
        return f"{flops(point['flops'])} at {intensity(point['intensity'])}"
    if "bytes" in bounds:
        low, high = bounds["flops"]
        least = f"{flops(low)} to " if low > 0 else "at most "
        many = bounds["bytes"][1]
        traffic = f", at most {bytes_rate(many)}" if many else ""
        return f"{least}{flops(high)}{traffic} (estimated)"
    return "no work, or no memory traffic, so no place on the chart"


def roof_shares(row: Mapping[str, Any]) -> str:
    """Return how much of each roof a row reaches: 66 % (spec), 60 % (clock)."""
    reached = row.get("roof", {})
    return ", ".join(f"{percent(reached[each])} ({each})" for each in BASES if each in reached)


def roofline_figure(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the place of the chart, and the numbers behind it as a table."""
    numbers = "".join(
        f'<tr><th scope="row">{escape(title(row))}</th><td>{escape(point_words(row))}</td>'
        f"<td>{escape(roof_shares(row)) or 'not known'}</td></tr>"
        for row in rows.values()
        if not row.get("mig")
    )
    return f"""<figure id="roofline">
<label class="product" hidden>Product <select id="product"></select></label>
<div class="plot"><svg class="roofline" role="group" aria-labelledby="roofline-title"></svg>
<div class="tip" role="status" hidden></div></div>
<ul class="legend">
<li><svg viewBox="0 0 30 8" aria-hidden="true"><path class="roof spec assumed" d="M0 4H30"/></svg>
datasheet</li>
<li><svg viewBox="0 0 30 8" aria-hidden="true"><path class="roof achievable" d="M0 4H30"/></svg>
best public kernels</li>
<li><svg viewBox="0 0 30 8" aria-hidden="true"><path class="roof clock" d="M0 4H30"/></svg>
<span data-c="clock">at the clock of the selected GPU</span></li>
</ul>
<p class="note"></p>
<p id="selected" hidden><a href="/">Open</a> <span></span></p>
<details id="numbers"><summary>The chart as a table</summary>
<table><thead><tr><th scope="col">GPU</th><th scope="col">Work and intensity</th>
<th scope="col">Of the roof</th></tr></thead><tbody>{numbers}</tbody></table></details>
</figure>"""


def node_content(view: Mapping[str, Any]) -> str:
    """Return the content of the node view."""
    rows, now = view["rows"], view.get("timestamp", 0.0)
    return f"""<h1 id="headline" aria-live="polite">{escape(view["headline"])}</h1>
<p id="totals">{escape(view["totals"])}</p>
{problem_section(view.get("problem"))}
<div id="node"{"" if rows else " hidden"}>
<section aria-labelledby="gpus-title"><h2 id="gpus-title">GPUs</h2>
{gpu_table(rows, now)}</section>
<section id="chart" aria-labelledby="roofline-title"><h2 id="roofline-title">Roofline</h2>
{roofline_figure(rows)}</section>
</div>"""
