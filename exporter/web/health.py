# SPDX-License-Identifier: Apache-2.0
"""Is the daemon alive, and has it something to show?"""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from exporter.clock import stale_after_seconds
from exporter.web.store import Store


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

    async def healthy(_: Request) -> PlainTextResponse:
        return PlainTextResponse("healthy\n")

    async def ready(_: Request) -> PlainTextResponse:
        problem = not_ready(store, poll_interval_seconds())
        if problem is None:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"not ready: {problem}\n", status_code=503)

    return [Route("/-/healthy", healthy), Route("/-/ready", ready)]
