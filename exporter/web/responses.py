# SPDX-License-Identifier: Apache-2.0
"""Answers of what sits in a request's way, and of what need not pay for a framework's response."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import Scope, Send

Header = tuple[bytes, bytes]


async def respond(
    scope: Scope, send: Send, status: int, body: bytes, headers: Iterable[Header]
) -> None:
    """Send an answer whole; of a request with HEAD only how long it would be."""
    sized = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": sized})
    sent = b"" if scope["method"] == "HEAD" else body
    await send({"type": "http.response.body", "body": sent})


async def refuse_plainly(
    scope: Scope, send: Send, status: int, reason: str, headers: Iterable[Header] = ()
) -> None:
    """Send why there is no answer, in a line."""
    kind = (b"content-type", b"text/plain; charset=utf-8")
    await respond(scope, send, status, f"{reason}\n".encode(), [kind, *headers])
