# SPDX-License-Identifier: Apache-2.0
"""The content of ``/gpu/{uuid}``: live row, history and facts of one GPU or GPU instance."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from exporter.model.snapshot import Gpu, Share
from exporter.specs import SpecBook
from exporter.web.history import Series
from exporter.web.live.rows import Row, addresses
from exporter.web.page.charts import gpu_charts
from exporter.web.page.details import gpu_facts
from exporter.web.page.document import root_from
from exporter.web.page.node import roofline_figure
from exporter.web.page.processes import gpu_processes
from exporter.web.page.table import gpu_table
from exporter.web.wording.diagnosis import address, not_known, sentences
from exporter.web.wording.numbers import capitalised, model_name
from exporter.web.wording.phrases import bounds_sentence

ROOT = root_from("/gpu/UUID")


def _title(row: Row) -> str:
    return escape(row["words"]["title"])


def _neighbours(rows: Mapping[str, Row], key: str) -> str:
    """Return links to all GPUs, and to the GPUs before and after this one."""
    keys = list(rows)
    at = keys.index(key)
    links = [f'<a href="{ROOT}">All GPUs</a>']
    if at > 0:
        before = keys[at - 1]
        links.append(f'<a href="{ROOT}{escape(rows[before]["href"])}">← {_title(rows[before])}</a>')
    if at + 1 < len(keys):
        after = keys[at + 1]
        links.append(f'<a href="{ROOT}{escape(rows[after]["href"])}">{_title(rows[after])} →</a>')
    return f'<nav aria-label="GPUs">{" ".join(links)}</nav>'


def _causes(share: Share | None) -> str:
    if share is None:
        return ""
    said = [
        f"<li>{escape(sentences(each))}"
        f' <a href="{escape(address(each.cause))}">{escape(each.cause)}</a></li>'
        for each in share.diagnoses
    ]
    unknown = not_known(share.missing_evidence)
    if unknown:
        said.append(f"<li>{escape(capitalised(unknown))}.</li>")
    if not said:
        return ""
    return (
        '<section aria-labelledby="causes-title"><h2 id="causes-title">Why</h2>'
        f"<ul>{''.join(said)}</ul></section>"
    )


def rows_of(rows: Mapping[str, Row], key: str) -> dict[str, Row]:
    """Return the row `key` and, for a GPU with MIG on, the rows of its instances."""
    return {
        name: row
        for name, row in rows.items()
        if name == key or (rows[key].get("mig") and name.startswith(f"{key}/"))
    }


def gpu_content(
    view: Mapping[str, Any],
    key: str,
    gpu: Gpu,
    share: Share | None,
    specs: SpecBook,
    jobs: str,
    series: Series | None,
) -> str:
    """Return the content of the page of row `key`; `series` is its history of 15 minutes."""
    row = view["rows"][key]
    said = row["words"]
    recent = None if share is None else share.recent
    bounds = {} if recent is None else recent.time_bounds
    ends = {part: (each.lower, each.upper) for part, each in bounds.items()}
    measured = filter(None, (said.get("measure"), bounds_sentence(ends)))
    state = ", ".join(filter(None, (said["word"], said.get("limit"), said.get("reason"))))
    return f"""{_neighbours(view["rows"], key)}
<h1 id="headline">{_title(row)} <small>{escape(model_name(gpu.device.name))}</small></h1>
<p id="totals">{escape(state)}</p>
<div id="gpu" data-key="{escape(key)}" data-history="{escape(addresses(key)[1])}">
<section class="card wide" aria-labelledby="gpus-title">
{gpu_table("Now", view["means"], rows_of(view["rows"], key), ROOT)}</section>
<div class="wide" id="causes">{_causes(share)}</div>
<div class="wide" id="jobs">{jobs}</div>
<p class="wide" id="measure">{"<br>".join(map(escape, measured))}</p>
<section class="card" id="chart" aria-labelledby="roofline-title">
<h2 id="roofline-title">Roofline</h2>
{roofline_figure({key: row})}</section>
{gpu_charts(series)}
<p class="wide" id="means"></p>
<p class="wide" id="absent" hidden></p>
{gpu_processes(gpu.shares if share is None else (share,))}
<div class="wide" id="facts">
{gpu_facts(gpu, share, specs, row.get("instance"))}
</div>
</div>"""
