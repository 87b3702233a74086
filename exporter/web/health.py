# SPDX-License-Identifier: Apache-2.0
"""``/-/healthy``: does the publisher tick? ``/-/ready``: is there a fresh snapshot of a GPU?"""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from exporter.clock import GAP_INTERVALS, stale_after_seconds
from exporter.web.store import Store

SILENT_SECONDS = 60.0
"""After which a publisher has died or hangs: it ticks with no GPU, and after a recording, too."""


def not_healthy(store: Store, poll_interval_seconds: float) -> str | None:
    """Return in one line why only a new start can help; None while the publisher ticks."""
    silent = store.silent_seconds()
    if silent <= max(SILENT_SECONDS, GAP_INTERVALS * poll_interval_seconds):
        return None
    return f"no reading round has ended for {silent:.0f} s"


def not_ready(store: Store, poll_interval_seconds: float) -> str | None:
    """Return in one line why there is nothing fresh to show; None if at least one GPU is up."""
    snapshot, age = store.latest(), store.age_seconds()
    if snapshot is None or age is None:
        return "no snapshot yet"
    if age > stale_after_seconds(poll_interval_seconds):
        return f"the last snapshot is {age:.0f} s old"
    if any(gpu.up for gpu in snapshot.gpus):
        return None
    return " ".join((snapshot.problem or "no GPU is up").split())


def health_routes(store: Store, poll_interval_seconds: Callable[[], float]) -> list[Route]:
    """Return ``/-/healthy`` and ``/-/ready``."""

    def route(word: str, why_not: Callable[[Store, float], str | None]) -> Route:
        async def endpoint(_: Request) -> PlainTextResponse:
            problem = why_not(store, poll_interval_seconds())
            if problem is None:
                return PlainTextResponse(f"{word}\n")
            return PlainTextResponse(f"not {word}: {problem}\n", status_code=503)

        return Route(f"/-/{word}", endpoint)

    return [route("healthy", not_healthy), route("ready", not_ready)]
