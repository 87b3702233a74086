# SPDX-License-Identifier: Apache-2.0
"""``/metrics``: hands out ready bytes in the event loop, and renders in a thread what is not."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from exporter.exposition.formats import negotiate
from exporter.exposition.pages import Pages

PARALLEL_SCRAPES = 40


@lru_cache(maxsize=64)
def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an Accept-Encoding header names gzip with a weight above 0."""
    for entry in accept_encoding.lower().split(","):
        coding, *parameters = (part.strip() for part in entry.split(";"))
        if coding in ("gzip", "x-gzip"):
            return not any(
                name.strip() == "q" and not weight.strip().strip("0.")
                for name, _, weight in (parameter.partition("=") for parameter in parameters)
            )
    return False


def _header(scope: Scope, name: bytes) -> str:
    return ",".join([value.decode("latin-1") for key, value in scope["headers"] if key == name])


class MetricsEndpoint:
    """The ASGI application behind ``/metrics``."""

    def __init__(self, pages: Pages, parallel_scrapes: int = PARALLEL_SCRAPES) -> None:
        self._pages = pages
        self._parallel_scrapes = parallel_scrapes
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one scrape, or 503 while too many are being answered."""
        if self._running >= self._parallel_scrapes:
            body = f"{self._running} scrapes are under way, which is the limit\n".encode()
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"retry-after", b"1")]
            await _respond(scope, send, 503, headers, body)
            return
        self._running += 1
        try:
            form, content_type = negotiate(_header(scope, b"accept"))
            zipped = accepts_gzip(_header(scope, b"accept-encoding"))
            names = parse_qs(scope["query_string"].decode("latin-1")).get("name[]")
            body_ready: bytes | None
            if names:
                body_ready = await run_in_threadpool(self._pages.filtered, names, form, zipped)
            else:
                body_ready = self._pages.ready(form, zipped)
                if body_ready is None:
                    body_ready = await run_in_threadpool(self._pages.page, form, zipped)
            headers = [
                (b"content-type", content_type.encode("latin-1")),
                (b"vary", b"Accept, Accept-Encoding"),
            ]
            if zipped:
                headers.append((b"content-encoding", b"gzip"))
            await _respond(scope, send, 200, headers, body_ready)
        finally:
            self._running -= 1


async def _respond(
    scope: Scope, send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    sent = b"" if scope["method"] == "HEAD" else body
    await send({"type": "http.response.body", "body": sent})
