# SPDX-License-Identifier: Apache-2.0
"""The routes ``/`` and ``/gpu/{uuid}``."""

from __future__ import annotations

from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from exporter.model.reading import share_name
from exporter.specs import SpecBook
from exporter.web.live.view import Views
from exporter.web.page.document import document, frame, root_from
from exporter.web.page.gpu import ROOT, gpu_content, rows_of
from exporter.web.page.jobs import gpu_jobs
from exporter.web.page.node import node_content, problem_section
from exporter.web.query_params import requested_gpu, requested_instance
from exporter.web.responses import answer
from exporter.web.static import HEADERS
from exporter.web.threads import Threads

SHARED_MODULES = (
    "dom.js",
    "format.js",
    "frame.js",
    "geometry.js",
    "roofline.js",
    "roofline_mark.js",
    "rows.js",
    "stream.js",
    "trails.js",
)
NODE_MODULES = ("node.js", "listing.js", *SHARED_MODULES)
GPU_MODULES = ("gpu.js", "charts.js", "history.js", *SHARED_MODULES)
HTML = "text/html; charset=utf-8"


def page_routes(views: Views, specs: Callable[[], SpecBook], threads: Threads) -> list[Route]:
    """Return ``/`` and ``/gpu/{uuid}``, which takes an index as well."""

    def index(request: Request) -> Response:
        view, snapshot = views.latest(), views.store.latest()
        problem = problem_section(snapshot, views.tried())
        gpus = () if snapshot is None else snapshot.gpus
        root = root_from("/")
        body = frame(view, node_content(view, problem, gpus), root)
        html = document(f"{view['headline']} · roofline-exporter", body, root, modules=NODE_MODULES)
        return answer(request, html.encode(), HTML, HEADERS)

    def gpu(request: Request) -> Response:
        name = request.path_params["uuid"]
        instance, view = requested_instance(request), views.latest()
        snapshot = views.store.latest()
        found = requested_gpu(snapshot, name)
        if snapshot is not None and found is not None:
            uuid = found.device.uuid
            key = share_name(uuid, instance)
            if key in view["rows"]:
                share = next((each for each in found.shares if each.gpu_instance == instance), None)
                earlier, now = views.store.earlier_ranks(), snapshot.timestamp_seconds
                jobs = gpu_jobs(snapshot.ranks, earlier, uuid, instance, share, now)
                series = views.store.history.series(uuid, instance)
                own_view = {**view, "rows": rows_of(view["rows"], key)}
                content = gpu_content(view, key, found, share, specs(), jobs, series)
                html = document(
                    f"{view['rows'][key]['words']['title']} · roofline-exporter",
                    frame(own_view, content, ROOT),
                    ROOT,
                    scripts=("uplot/uPlot.iife.min.js",),
                    modules=GPU_MODULES,
                )
                return answer(request, html.encode(), HTML, HEADERS)
        shown = share_name(name[:80], instance)
        raise HTTPException(404, f"no GPU has the UUID or index {shown!r}")

    return [Route("/", threads.aside(index)), Route("/gpu/{uuid}", threads.aside(gpu))]
