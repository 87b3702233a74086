# SPDX-License-Identifier: Apache-2.0
"""``/``: a small page that names the product, its GPUs and the other addresses."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from exporter import __version__
from exporter.snapshot import Snapshot
from exporter.store import Store
from exporter.web.cards import cards
from exporter.web.health import not_ready

DOCUMENTATION = "https://github.com/roofline-exporter/roofline-exporter"

_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.4 system-ui, sans-serif; margin: 1.5rem auto; max-width: 90rem }
body { padding: 0 1rem }
main { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)) }
section { border: 1px solid #8888; border-radius: .5rem; padding: .6rem 1rem }
section.down { border-style: dashed; opacity: .75 }
h2 { font-size: 1.1rem; margin: 0 0 .5rem }
small { font-weight: normal; overflow-wrap: anywhere }
dl { display: grid; gap: .15rem .8rem; grid-template-columns: auto 1fr; margin: 0 }
dd { margin: 0; overflow-wrap: anywhere }
.bar { display: block; height: .5rem; width: 100% }
.track { fill: #8884 }
.band { fill: #d558 }
.utilization { fill: #6a8fb5 }
.saturation { fill: #c8551b }
.warning { background: #ffe08a; border: 2px solid #a60; color: #000; padding: .5rem .8rem }
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


_INVENTED = {
    "simulate": "this data is simulated",
    "replay": "this data is a recording, played back",
}


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
        what = " and ".join(_INVENTED.get(source, source) for source in sorted(invented))
        parts.append(f'<p class="warning"><strong>Not real GPUs:</strong> {escape(what)}.</p>')
    if problem is not None:
        parts.append(f'<p class="warning">Not ready: {escape(problem)}</p>')
    if snapshot is not None and snapshot.gpus:
        parts.append(f"<main>\n{''.join(cards(snapshot))}</main>")
    parts.append(
        '<p><a href="/metrics">Metrics</a> · <a href="/api/v1/gpus">GPUs as JSON</a> · '
        '<a href="/api/v1/roofline">Rooflines as JSON</a> · '
        '<a href="/api/v1/training">Training as JSON</a> · <a href="/-/ready">Readiness</a> · '
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
