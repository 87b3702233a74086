# SPDX-License-Identifier: Apache-2.0
"""The ASGI application: routes of pages, API, metrics and health."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from exporter.exposition.pages import Pages
from exporter.specs import SpecBook
from exporter.web.api.history import history_routes
from exporter.web.api.routes import api_routes
from exporter.web.error_handler import refuse
from exporter.web.health import health_routes
from exporter.web.live.stream import STREAM_PATH, Streams
from exporter.web.live.view import Views
from exporter.web.metrics import (
    PARALLEL_SCRAPES,
    MetricsEndpoint,
    Scrapes,
    dcgm_page,
    metrics_page,
)
from exporter.web.page.routes import page_routes
from exporter.web.server.counts import uncounted
from exporter.web.static import static_routes
from exporter.web.store import Store
from exporter.web.threads import Threads

THREADS = 4
"""That make responses; more threads would hold more responses in memory."""


def create_app(
    *,
    store: Store,
    pages: Pages,
    specs: Callable[[], SpecBook],
    poll_interval_seconds: Callable[[], float],
    parallel_scrapes: int = PARALLEL_SCRAPES,
    streams: Streams | None = None,
    refused: Callable[[str], None] = uncounted,
) -> Starlette:
    """Return the application; without `streams` a page stays as it was loaded.

    What gives the spec file and the poll interval is asked each time: a reload may change them.
    """
    threads = Threads("answers", THREADS)
    streams = streams or Streams(Views(store, poll_interval_seconds), refused=refused)
    scrapes = Scrapes(parallel_scrapes, refused)
    app = Starlette(
        exception_handlers={HTTPException: refuse},
        routes=[
            # First, so that a scrape passes one comparison only.
            Route("/metrics", MetricsEndpoint(pages, scrapes, metrics_page), methods=["GET"]),
            Route("/metrics/dcgm", MetricsEndpoint(pages, scrapes, dcgm_page), methods=["GET"]),
            *health_routes(store, poll_interval_seconds),
            *page_routes(streams.views, specs, threads),
            *static_routes(),
            Route(STREAM_PATH, streams, methods=["GET"]),
            *history_routes(store, threads),
            *api_routes(store, specs, threads),
        ],
    )
    # A redirect from /metrics/ would be one more way for a scrape to go wrong.
    app.router.redirect_slashes = False
    return app
