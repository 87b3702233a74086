# SPDX-License-Identifier: Apache-2.0
"""``/metrics`` and ``/metrics/dcgm``: serve rendered pages, render others in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import parse_qs

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.types import Receive, Scope, Send

from exporter.exposition.dcgm.field import Names
from exporter.exposition.formats import Format, negotiate
from exporter.exposition.pages import Pages
from exporter.web.responses import accepts_gzip, refuse_plainly, respond
from exporter.web.server.counts import uncounted
from exporter.web.threads import Threads

PARALLEL_SCRAPES = 40
RENDERERS = 2
"""Threads; those of the API's answers are others, so that a scrape does not wait for them."""


def _header(scope: Scope, name: bytes) -> str:
    return ",".join([value.decode("latin-1") for key, value in scope["headers"] if key == name])


class Scrapes:
    """The limit of concurrent scrapes, and the threads that render pages."""

    def __init__(
        self, most: int = PARALLEL_SCRAPES, refused: Callable[[str], None] = uncounted
    ) -> None:
        """Take the limit, and what to call for each scrape that it refuses."""
        self._most = most
        self._refused = refused
        self._running = 0
        self.threads = Threads("render", RENDERERS)

    def begin(self) -> str | None:
        """Count one more; return why that cannot be, in one line, or None."""
        if self._running >= self._most:
            self._refused("scrapes")
            return f"{self._running} scrapes are under way, which is the limit"
        self._running += 1
        return None

    def end(self) -> None:
        """Count one less."""
        self._running -= 1


class _BadQuery(Exception):
    """The query is invalid; one line says why."""


class _Page(NamedTuple):
    """One page with its headers."""

    body: bytes
    content_type: str
    vary: bytes


class _Endpoint:
    """An ASGI application that serves one kind of page."""

    def __init__(self, pages: Pages, scrapes: Scrapes) -> None:
        self._pages = pages
        self._scrapes = scrapes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one scrape, or 503 while too many are being made."""
        problem = self._scrapes.begin()
        if problem is not None:
            await refuse_plainly(scope, send, 503, problem, [(b"retry-after", b"1")])
            return
        zipped = accepts_gzip(_header(scope, b"accept-encoding"))
        try:
            made = await self._page(scope, zipped)
        except _BadQuery as refused:
            await refuse_plainly(scope, send, 400, str(refused))
            return
        finally:
            # Before sending, so that a client that does not read occupies no place.
            self._scrapes.end()
        headers = [
            (b"content-type", made.content_type.encode("latin-1")),
            (b"vary", made.vary),
        ]
        if zipped:
            headers.append((b"content-encoding", b"gzip"))
        await respond(scope, send, 200, made.body, headers)

    async def _page(self, scope: Scope, zipped: bool) -> _Page:
        """Return the page that a request asks for.

        Raises:
            _BadQuery: there is no such page.
        """
        raise NotImplementedError


class MetricsEndpoint(_Endpoint):
    """The ASGI application behind ``/metrics``."""

    async def _page(self, scope: Scope, zipped: bool) -> _Page:
        form, content_type = negotiate(_header(scope, b"accept"))
        body = await self._body(scope["query_string"], form, zipped)
        return _Page(body, content_type, b"Accept, Accept-Encoding")

    async def _body(self, query: bytes, form: Format, zipped: bool) -> bytes:
        threads = self._scrapes.threads
        names = parse_qs(query.decode("latin-1")).get("name[]") if query else None
        if names:
            return await threads.run(self._pages.filtered, names, form, zipped)
        ready = self._pages.ready(form, zipped)
        if ready is not None:
            return ready
        return await threads.run(self._pages.page, form, zipped)


class DcgmEndpoint(_Endpoint):
    """The ASGI application behind ``/metrics/dcgm``, which has one format as dcgm-exporter has."""

    async def _page(self, scope: Scope, zipped: bool) -> _Page:
        names = _generation(scope["query_string"])
        body = self._pages.dcgm.ready(names, zipped)
        if body is None:
            body = await self._scrapes.threads.run(self._pages.dcgm.page, names, zipped)
        return _Page(body, CONTENT_TYPE_PLAIN_0_0_4, b"Accept-Encoding")


def _generation(query: bytes) -> Names:
    """Return whose names a query asks for.

    Raises:
        _BadQuery: there are no such names.
    """
    if not query:
        return "legacy"
    names = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("names", ["legacy"])
    chosen: Names | None = _GENERATIONS.get(names[0]) if len(names) == 1 else None
    if chosen is None:
        raise _BadQuery(f"names can be {' or '.join(_GENERATIONS)}")
    return chosen


_GENERATIONS: dict[str, Names] = {"legacy": "legacy", "current": "current"}
