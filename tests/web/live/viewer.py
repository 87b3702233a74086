# SPDX-License-Identifier: Apache-2.0
"""A viewer of the stream that talks ASGI, and can be slow, stuck or gone as a test likes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message

from exporter.web.live.stream import STREAM_PATH

PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Event:
    """One server-sent event, or a comment."""

    name: str
    sequence: int | None
    value: Any


def parsed(block: bytes) -> Event:
    """Return the fields of one event block."""
    fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
    data = fields.get("data")
    return Event(
        fields.get("event", "comment" if "" in fields else "retry"),
        int(fields["id"]) if "id" in fields else None,
        fields.get("", fields.get("retry")) if data is None else json.loads(data),
    )


@dataclass
class Viewer:
    """One open stream."""

    app: ASGIApp
    address: str = "127.0.0.1"
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def __post_init__(self) -> None:
        self._gone = asyncio.Event()
        self.reading = asyncio.Event()
        """Unset, it is a client with full buffers."""
        self.reading.set()
        self._asked = False
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "path": STREAM_PATH,
            "query_string": b"",
            "headers": [],
            "client": (self.address, 1),
        }
        await self.app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.reading.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        body = message.get("body", b"")
        self.body += body
        if self.status == 200:
            for block in body.split(b"\n\n")[:-1]:
                self._events.put_nowait(parsed(block))

    async def event(self) -> Event:
        """Return the next event."""
        return await asyncio.wait_for(self._events.get(), PATIENCE_SECONDS)

    async def whole(self) -> Event:
        """Return the first event with a view."""
        await self.event()
        return await self.event()

    @property
    def waiting(self) -> int:
        """The number of events that were not looked at."""
        return self._events.qsize()

    async def leave(self) -> None:
        """Close the connection, and wait until the server has noticed."""
        self._gone.set()
        await self.ended()

    async def ended(self) -> None:
        """Wait until the server has ended the stream."""
        await asyncio.wait_for(self.task, PATIENCE_SECONDS)


def merged(target: Any, patch: Any) -> Any:
    """Return the target with the patch applied (RFC 7386, section 2)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
