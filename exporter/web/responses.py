# SPDX-License-Identifier: Apache-2.0
"""Responses without a framework, and compressed ones.

No middleware: it would buffer the event stream and slow each scrape.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope, Send

Header = tuple[bytes, bytes]


async def respond(
    scope: Scope, send: Send, status: int, body: bytes, headers: Iterable[Header]
) -> None:
    """Send a response; to HEAD without its body."""
    sized = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": sized})
    sent = b"" if scope["method"] == "HEAD" else body
    await send({"type": "http.response.body", "body": sent})


async def refuse_plainly(
    scope: Scope, send: Send, status: int, reason: str, headers: Iterable[Header] = ()
) -> None:
    """Send an error as one line of text."""
    kind = (b"content-type", b"text/plain; charset=utf-8")
    await respond(scope, send, status, f"{reason}\n".encode(), [kind, *headers])


LEVEL = 6
"""Some milliseconds at most; a fifth fewer bytes than at 1, and next to no more than at 9."""


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


def answer(
    request: Request,
    body: bytes,
    content_type: str,
    headers: Mapping[str, str],
    zipped: bytes | None = None,
) -> Response:
    """Return `body` as an answer of this type, compressed where the request accepts that."""
    sent = {**headers, "Vary": "Accept-Encoding", "Content-Type": content_type}
    if accepts_gzip(request.headers.get("accept-encoding", "")):
        body = gzip.compress(body, LEVEL, mtime=0) if zipped is None else zipped
        sent["Content-Encoding"] = "gzip"
    return Response(body, headers=sent)
