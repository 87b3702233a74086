# SPDX-License-Identifier: Apache-2.0
"""``/metrics`` and ``/metrics/dcgm``: serve rendered pages, render others in a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.types import Receive, Scope, Send

from exporter.exposition.dcgm import Names
from exporter.exposition.formats import negotiate
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
        self.most = most
        self.refused = refused
        self.running = 0
        self.threads = Threads("render", RENDERERS)


class _BadQuery(Exception):
    """The query is invalid; one line says why."""


_Page = tuple[bytes, str, bytes]
"""Its body, its type, and what it varies by."""
Make = Callable[[Pages, Threads, Scope, bool], Awaitable[_Page]]
"""Returns the page that a request asks for, compressed or not; raises _BadQuery."""


class MetricsEndpoint:
    """The ASGI application behind ``/metrics`` or, with `dcgm_page`, ``/metrics/dcgm``."""

    def __init__(self, pages: Pages, scrapes: Scrapes, make: Make) -> None:
        self._pages = pages
        self._scrapes = scrapes
        self._make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one scrape, or 503 while too many are being made."""
        scrapes, zipped = self._scrapes, accepts_gzip(_header(scope, b"accept-encoding"))
        if scrapes.running >= scrapes.most:
            scrapes.refused("scrapes")
            problem = f"{scrapes.running} scrapes are under way, which is the limit"
            await refuse_plainly(scope, send, 503, problem, [(b"retry-after", b"1")])
            return
        scrapes.running += 1
        try:
            body, kind, vary = await self._make(self._pages, scrapes.threads, scope, zipped)
        except _BadQuery as refused:
            await refuse_plainly(scope, send, 400, str(refused))
            return
        finally:
            # Before sending, so that a client that does not read occupies no place.
            scrapes.running -= 1
        headers = [(b"content-type", kind.encode("latin-1")), (b"vary", vary)]
        if zipped:
            headers.append((b"content-encoding", b"gzip"))
        await respond(scope, send, 200, body, headers)


async def metrics_page(pages: Pages, threads: Threads, scope: Scope, zipped: bool) -> _Page:
    """Return the page of ``/metrics``, in the format that is accepted."""
    form, content_type = negotiate(_header(scope, b"accept"))
    query = scope["query_string"]
    names = parse_qs(query.decode("latin-1")).get("name[]") if query else None
    body = None if names else pages.ready(form, zipped)
    if names:
        body = await threads.run(pages.filtered, names, form, zipped)
    elif body is None:
        body = await threads.run(pages.page, form, zipped)
    return body, content_type, b"Accept, Accept-Encoding"


async def dcgm_page(pages: Pages, threads: Threads, scope: Scope, zipped: bool) -> _Page:
    """Return the page of ``/metrics/dcgm``, which has one format as dcgm-exporter has."""
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    asked = query.get("names", ["legacy"])
    names: Names | None = _GENERATIONS.get(asked[0]) if len(asked) == 1 else None
    if names is None:
        raise _BadQuery(f"names can be {' or '.join(_GENERATIONS)}")
    body = pages.dcgm.ready(names, zipped)
    if body is None:
        body = await threads.run(pages.dcgm.page, names, zipped)
    return body, CONTENT_TYPE_PLAIN_0_0_4, b"Accept-Encoding"


_GENERATIONS: dict[str, Names] = {"legacy": "legacy", "current": "current"}
