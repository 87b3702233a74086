# SPDX-License-Identifier: Apache-2.0
"""``/metrics``: hands out ready bytes in the event loop, and renders in a thread what is not."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from urllib.parse import parse_qs

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.types import Receive, Scope, Send

from exporter.exposition.formats import Format, negotiate
from exporter.exposition.pages import Pages
from exporter.web.plain import refuse_plainly, respond
from exporter.web.server.counts import uncounted

PARALLEL_SCRAPES = 40
LONGEST_KEPT = 1024
"""Characters of a header whose meaning is kept for the next request."""
RENDERERS = 4
"""Threads; those of the API's answers are others, so that a scrape does not wait for them."""


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an Accept-Encoding header names gzip with a weight above 0."""
    if len(accept_encoding) > LONGEST_KEPT:
        return _names_gzip(accept_encoding)
    return _kept_names_gzip(accept_encoding)


def _names_gzip(accept_encoding: str) -> bool:
    for entry in accept_encoding.lower().split(","):
        coding, *parameters = (part.strip() for part in entry.split(";"))
        if coding in ("gzip", "x-gzip"):
            return not any(
                name.strip() == "q" and not weight.strip().strip("0.")
                for name, _, weight in (parameter.partition("=") for parameter in parameters)
            )
    return False


_kept_names_gzip = lru_cache(maxsize=64)(_names_gzip)


def _header(scope: Scope, name: bytes) -> str:
    return ",".join([value.decode("latin-1") for key, value in scope["headers"] if key == name])


class MetricsEndpoint:
    """The ASGI application behind ``/metrics``."""

    def __init__(
        self,
        pages: Pages,
        parallel_scrapes: int = PARALLEL_SCRAPES,
        refused: Callable[[str], None] = uncounted,
    ) -> None:
        """Take the pages, how many are made at a time, and whom to call for one more."""
        self._pages = pages
        self._parallel_scrapes = parallel_scrapes
        self._refused = refused
        self._running = 0
        self._threads = CapacityLimiter(RENDERERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one scrape, or 503 while too many are being made."""
        if self._running >= self._parallel_scrapes:
            self._refused("scrapes")
            reason = f"{self._running} scrapes are under way, which is the limit"
            await refuse_plainly(scope, send, 503, reason, [(b"retry-after", b"1")])
            return
        self._running += 1
        try:
            form, content_type = negotiate(_header(scope, b"accept"))
            zipped = accepts_gzip(_header(scope, b"accept-encoding"))
            body = await self._body(scope["query_string"], form, zipped)
        finally:
            # Before it is sent: whoever does not read keeps nobody else from a page.
            self._running -= 1
        headers = [
            (b"content-type", content_type.encode("latin-1")),
            (b"vary", b"Accept, Accept-Encoding"),
        ]
        if zipped:
            headers.append((b"content-encoding", b"gzip"))
        await respond(scope, send, 200, body, headers)

    async def _body(self, query: bytes, form: Format, zipped: bool) -> bytes:
        names = parse_qs(query.decode("latin-1")).get("name[]") if query else None
        if names:
            return await run_sync(self._pages.filtered, names, form, zipped, limiter=self._threads)
        ready = self._pages.ready(form, zipped)
        if ready is not None:
            return ready
        return await run_sync(self._pages.page, form, zipped, limiter=self._threads)
