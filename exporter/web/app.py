# SPDX-License-Identifier: Apache-2.0
"""Puts the HTTP side together: which path is answered by what."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from exporter import __version__
from exporter.exposition.pages import Pages
from exporter.specs import SpecBook
from exporter.store import Store
from exporter.web.api import api_router
from exporter.web.health import health_routes
from exporter.web.metrics import MetricsEndpoint
from exporter.web.models import Problem
from exporter.web.page import HEADERS, document, page_routes

DESCRIPTION = (
    "How busy, how saturated and how idle each NVIDIA GPU of this node is. What is not known is "
    "left out of the JSON; it is never null, 0 or a special value. Ratios are 0 to 1, all else is "
    "in base units: seconds, bytes, joules, watts, hertz, FLOP/s."
)


async def _refuse(request: Request, problem: Exception) -> Response:
    """Answer an error in one line, as a page if a browser asks outside the API."""
    if not isinstance(problem, HTTPException):
        raise problem
    path = request.url.path
    text = problem.detail
    if problem.status_code == 404 and text == "Not Found":
        text = f"there is nothing at {path}"
    if not path.startswith("/api/") and "text/html" in request.headers.get("accept", ""):
        body = f'<h1>{problem.status_code}</h1>\n<p>{escape(text)}</p>\n<p><a href="/">Home</a></p>'
        html = document(f"{problem.status_code} - roofline-exporter", body)
        return HTMLResponse(html, problem.status_code, {**HEADERS, **(problem.headers or {})})
    answer = Problem(error=text).model_dump()
    return JSONResponse(answer, problem.status_code, dict(problem.headers or {}))


def create_app(
    *,
    store: Store,
    pages: Pages,
    specs: Callable[[], SpecBook],
    poll_interval_seconds: Callable[[], float],
) -> FastAPI:
    """Return the application.

    Args:
        store: where the latest snapshot is.
        pages: the pages for scrapers.
        specs: gives the spec file in use, which a reload may replace.
        poll_interval_seconds: gives the poll interval in use.
    """
    app = FastAPI(
        title="roofline-exporter",
        version=__version__,
        description=DESCRIPTION,
        # Their pages load scripts from elsewhere; the schema has a route of its own that builds
        # it in a thread.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _refuse},
        routes=[
            # First, so that a scrape passes one comparison only.
            Route("/metrics", MetricsEndpoint(pages), methods=["GET"]),
            *health_routes(store, poll_interval_seconds),
            *page_routes(store, poll_interval_seconds),
        ],
    )
    app.include_router(api_router(store, specs))
    return app
