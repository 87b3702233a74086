# SPDX-License-Identifier: Apache-2.0
"""What a request passes before the application sees it: the web configuration's terms."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exporter.web.access.access import Access
from exporter.web.access.passwords import Busy, Passwords, credentials
from exporter.web.access.rate import Bucket
from exporter.web.access.terms import Terms
from exporter.web.responses import Header, refuse_plainly
from exporter.web.server.counts import uncounted
from exporter.web.server.protocol import SCOPE_KEY

OPEN_PATH = "/-/healthy"
"""It asks for nothing: what starts the daemon anew when it hangs has no password."""
CHALLENGE = b'Basic realm="roofline-exporter", charset="UTF-8"'
NO_STORE = (b"cache-control", b"no-store")
RETRY_SECONDS = 1


class _Refusal(NamedTuple):
    reason: str
    """As in `exporter.model.daemon.REQUEST_REFUSALS`."""
    status: int
    text: str
    header: Header | None = None


class Gate:
    """An application before another: rate limit, passwords, headers, and the end of old terms."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        count: Callable[[str], None] = uncounted,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Guard an application.

        Args:
            app: what answers those who may ask.
            access: gives the terms.
            count: is called with the reason of each refusal.
            clock: gives seconds; never steps.
        """
        self._app = app
        self._access = access
        self._count = count
        self._clock = clock
        self._passwords = Passwords()
        self._bucket: Bucket | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or have it answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_open = scope["path"] == OPEN_PATH
        terms = self._access.terms if is_open else await self._access.recent()
        refusal = None if is_open else await self._refusal(scope, terms)
        admitted: Terms = scope.get(SCOPE_KEY, terms)
        send = self._dressed(send, terms, admitted)
        if refusal is not None:
            self._count(refusal.reason)
            headers = [NO_STORE] if refusal.header is None else [NO_STORE, refusal.header]
            await refuse_plainly(scope, send, refusal.status, refusal.text, headers)
        else:
            await self._app(scope, self._ending(receive, terms), send)

    async def _refusal(self, scope: Scope, terms: Terms) -> _Refusal | None:
        if terms.refuses_requests:
            return _Refusal("web_config", 503, "the web configuration cannot be used, see the log")
        bucket = self._limit(terms)
        if bucket is not None and not bucket.take(self._clock()):
            retry = _retry_after(bucket.retry_after_seconds)
            return _Refusal("rate", 429, "more requests than rate_limit allows", retry)
        if not terms.users:
            return None
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        asked = credentials(given[0]) if len(given) == 1 else None
        address = (scope.get("client") or ("",))[0]
        try:
            if asked and await self._passwords.check(terms.users, *asked, address):
                return None
        except Busy:
            retry = _retry_after(RETRY_SECONDS)
            return _Refusal("password", 503, "too many passwords wait to be checked", retry)
        return _Refusal(
            "password", 401, "a user and password are needed", (b"www-authenticate", CHALLENGE)
        )

    def _limit(self, terms: Terms) -> Bucket | None:
        limit = terms.rate_limit
        if limit is None:
            self._bucket = None
        elif self._bucket is None or self._bucket.limit != limit:
            self._bucket = Bucket(limit, self._clock())
        return self._bucket

    def _dressed(self, send: Send, terms: Terms, admitted: Terms) -> Send:
        """Return `send` with the configured headers, in the place of the application's own."""

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                # The terms may have changed while the answer was made.
                is_old = admitted.generation != self._access.terms.generation
                extra = [*terms.headers, *([(b"connection", b"close")] if is_old else [])]
                names = {name for name, _ in extra}
                own = [pair for pair in message.get("headers", ()) if pair[0].lower() not in names]
                message = {**message, "headers": [*own, *extra]}
            await send(message)

        return dressed

    def _ending(self, receive: Receive, terms: Terms) -> Receive:
        """Return `receive` that says that the client has gone once other terms hold.

        A stream would go on under the old ones for as long as it likes.
        """

        async def ending() -> Message:
            received = asyncio.ensure_future(receive())
            superseded = asyncio.ensure_future(self._access.superseded(terms.generation))
            try:
                await asyncio.wait({received, superseded}, return_when=asyncio.FIRST_COMPLETED)
                return received.result() if received.done() else {"type": "http.disconnect"}
            finally:
                received.cancel()
                superseded.cancel()

        return ending


def _retry_after(seconds: int) -> Header:
    return b"retry-after", str(seconds).encode()
