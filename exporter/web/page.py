# SPDX-License-Identifier: Apache-2.0
"""``/``: a small page that names the product, its GPUs and the other addresses."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from exporter import __version__
from exporter.snapshot import Gpu, Saturation, Share, Snapshot
from exporter.store import Store
from exporter.web.health import not_ready

DOCUMENTATION = "https://github.com/roofline-exporter/roofline-exporter"

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { border-bottom: 1px solid #8886; padding: .4rem .8rem .4rem 0; text-align: left }
.warning { border: 1px solid #b60; padding: .4rem .8rem }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } a { color: #8cf } }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

_COLUMNS = (
    "GPU",
    "Name",
    "Utilization",
    "Saturation",
    "Of roof",
    "Limited by",
    "Idle for",
    "Held",
    "State",
)
_UNKNOWN = "unknown"


def _percent(ratio: float | None) -> str:
    return _UNKNOWN if ratio is None else f"{ratio:.0%}"


def _saturation(saturation: Saturation | None) -> str:
    if saturation is None:
        return _UNKNOWN
    if saturation.ratio is not None:
        return f"{saturation.ratio:.0%} ({saturation.source})"
    bounds = saturation.bounds
    return f"{bounds.lower:.0%} to {bounds.upper:.0%} ({saturation.source})"


def duration_text(seconds: float) -> str:
    """Return a length of time as a person would say it: 12 s, 5 min, 2 h 10 min, 3 d 4 h."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{int(seconds)} s"


def _idle_for(gpu: Gpu, share: Share) -> str:
    last_busy, read = share.totals.last_busy_timestamp_seconds, gpu.last_read_timestamp_seconds
    if last_busy is None or read is None:
        return _UNKNOWN
    return duration_text(read - last_busy) if read > last_busy else "busy"


def _share_cells(gpu: Gpu, share: Share) -> tuple[str, ...]:
    device, instance = gpu.device, share.gpu_instance
    roof = None if share.roofline is None else share.roofline.roof_ratio.get("spec")
    return (
        str(device.index) if instance is None else f"{device.index}, MIG instance {instance}",
        device.name,
        _percent(None if share.utilization is None else share.utilization.ratio),
        _saturation(share.saturation),
        _percent(roof),
        share.limiter or _UNKNOWN,
        _idle_for(gpu, share),
        {True: "yes", False: "no", None: _UNKNOWN}[share.held],
        "up",
    )


def _rows(snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    for gpu in snapshot.gpus:
        device = gpu.device
        if gpu.up and gpu.shares:
            yield from (_share_cells(gpu, share) for share in gpu.shares)
        else:
            state = "up" if gpu.up else f"down: {gpu.down_reason or 'no answer'}"
            yield (str(device.index), device.name, *[""] * (len(_COLUMNS) - 3), state)


def _table(snapshot: Snapshot) -> str:
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n"
        for row in _rows(snapshot)
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


def document(title: str, body: str, head: str = "") -> str:
    """Return a whole HTML document; `title` is text, `body` and `head` are HTML."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n{head}'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def page_html(snapshot: Snapshot | None, problem: str | None) -> str:
    """Return the page; `problem` says in one line why nothing fresh can be shown."""
    parts = [f"<h1>roofline-exporter {escape(__version__)}</h1>"]
    invented = {gpu.device.source for gpu in snapshot.gpus} - {"nvml"} if snapshot else set()
    if invented:
        what = " and ".join(sorted(invented))
        parts.append(f'<p class="warning">Not a real GPU: this data comes from {escape(what)}.</p>')
    if problem is not None:
        parts.append(f'<p class="warning">Not ready: {escape(problem)}</p>')
    if snapshot is not None and snapshot.gpus:
        parts.append(_table(snapshot))
    parts.append(
        '<p><a href="/metrics">Metrics</a> · <a href="/api/v1/gpus">GPUs as JSON</a> · '
        '<a href="/api/v1/roofline">Rooflines as JSON</a> · <a href="/-/ready">Readiness</a> · '
        f'<a href="/api/openapi.json">API schema</a> · <a href="{DOCUMENTATION}">Documentation</a>'
        "</p>"
    )
    refresh = '<meta http-equiv="refresh" content="5">\n'
    return document("roofline-exporter", "\n".join(parts), refresh)


def page_routes(store: Store, poll_interval_seconds: Callable[[], float]) -> list[Route]:
    """Return ``/``."""

    def index(_: Request) -> HTMLResponse:
        problem = not_ready(store, poll_interval_seconds())
        return HTMLResponse(page_html(store.latest(), problem), headers=HEADERS)

    return [Route("/", index)]
