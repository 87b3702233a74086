# SPDX-License-Identifier: Apache-2.0
"""One request and its answer: what the ASGI application receives and sends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.types import Message

from exporter.web.server.request_framing import Request, head_bytes


@dataclass
class Exchange:
    """One request of a connection and its answer."""

    request: Request
    headers: list[tuple[bytes, bytes]]
    """Of every answer."""
    write: Callable[[bytes, bytes], Awaitable[None]]
    """Sends a head and a body, each of which may be empty."""
    is_last: Callable[[], bool]
    """Whether no request may follow."""
    stream: Callable[[], None]
    """Is called when the length of the answer is not known."""
    head: bytes = b""
    is_chunked: bool = False
    was_received: bool = False
    is_started: bool = False
    is_complete: bool = False
    is_over: bool = False
    """Whether the answer is complete or the client has gone."""
    is_ending: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to end a stream, too."""

    async def receive(self) -> Message:
        """Return the empty body of the request, then wait for the end."""
        if not self.was_received:
            self.was_received = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.is_ending.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send a part of the answer; its head goes together with what follows it."""
        if self.is_over:
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], message.get("headers", ()))
            return
        body, head, self.head = message.get("body", b""), self.head, b""
        more = message.get("more_body", False)
        if self.request.method == "HEAD":
            body, more = b"", False
        elif self.is_chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"" if more else b"0\r\n\r\n"
        await self.write(head, body)
        if not more:
            self.is_complete = True
            self.end()

    def end(self) -> None:
        """Tell the application that nothing more is sent."""
        self.is_over = True
        self.is_ending.set()

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.is_started = True
        headers = [*self.headers, *headers]
        names = {name.lower(): value for name, value in headers}
        if not self.request.keeps_alive or self.is_last():
            self.request.keeps_alive = False
            headers.append((b"connection", b"close"))
        has_body = self.request.method != "HEAD" and status not in (204, 304)
        if has_body and b"content-length" not in names:
            self.stream()
            self.is_chunked = self.request.version == "1.1"
            self.request.keeps_alive = self.request.keeps_alive and self.is_chunked
            if self.is_chunked:
                headers.append((b"transfer-encoding", b"chunked"))
        self.head = head_bytes(status, headers)
