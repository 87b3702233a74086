# SPDX-License-Identifier: Apache-2.0
"""``/`` and ``/gpu/{uuid}``: readable without scripts, and kept up to date by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from exporter.snapshot import Gpu, Snapshot
from exporter.specs import SpecBook
from exporter.web.document import document, frame
from exporter.web.facts import title
from exporter.web.gpu_page import gpu_content, rows_of
from exporter.web.node_page import node_content
from exporter.web.rows import row_key
from exporter.web.static import HEADERS
from exporter.web.views import Views

SHARED_MODULES = (
    "dom.js",
    "facts.js",
    "format.js",
    "frame.js",
    "geometry.js",
    "roofline.js",
    "roofline_mark.js",
    "roofline_words.js",
    "rows.js",
    "stream.js",
    "trails.js",
)
NODE_MODULES = ("node.js", *SHARED_MODULES)
GPU_MODULES = ("gpu.js", "charts.js", "history.js", "jobs.js", *SHARED_MODULES)


def node_html(view: dict[str, Any]) -> str:
    """Return the page of the node."""
    heading = f"{view['headline']} · roofline-exporter"
    return document(heading, frame(view, node_content(view), home=True), modules=NODE_MODULES)


def gpu_html(view: dict[str, Any], key: str, gpu: Gpu, specs: SpecBook) -> str:
    """Return the page of the row `key`, which is one of `view`."""
    content = gpu_content(view, key, gpu, specs)
    of_it = {**view, "rows": rows_of(view["rows"], key)}
    return document(
        f"{title(view['rows'][key])} · roofline-exporter",
        frame(of_it, content),
        styles=("uplot/uPlot.min.css", "page.css"),
        scripts=("uplot/uPlot.iife.min.js",),
        modules=GPU_MODULES,
    )


def _find(snapshot: Snapshot | None, key: str) -> Gpu | None:
    for gpu in snapshot.gpus if snapshot is not None else ():
        if key in (gpu.device.uuid, str(gpu.device.index)):
            return gpu
    return None


def _instance(request: Request) -> int | None:
    text = request.query_params.get("instance")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 5):
        raise HTTPException(400, f"instance: expected a whole number, got {text[:40]!r}")
    return int(text)


def page_routes(views: Views, specs: Callable[[], SpecBook]) -> list[Route]:
    """Return ``/`` and ``/gpu/{uuid}``, which takes an index as well."""

    def index(_: Request) -> HTMLResponse:
        return HTMLResponse(node_html(views.latest()), headers=HEADERS)

    def gpu(request: Request) -> HTMLResponse:
        name = request.path_params["uuid"]
        instance, view = _instance(request), views.latest()
        found = _find(views.store.latest(), name)
        if found is not None:
            key = row_key(found.device.uuid, instance)
            if key in view["rows"]:
                return HTMLResponse(gpu_html(view, key, found, specs()), headers=HEADERS)
        of = "" if instance is None else f" with a GPU instance {instance}"
        raise HTTPException(404, f"no GPU has the UUID or index {name[:80]!r}{of}")

    return [Route("/", index), Route("/gpu/{uuid}", gpu)]
