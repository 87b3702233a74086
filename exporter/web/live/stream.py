# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/stream``: the live view as server-sent events, encoded once for all viewers.

The publisher's thread encodes events, the event loop sends them; nothing is done without viewers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from starlette.types import Receive, Scope, Send

from exporter.model.snapshot import Snapshot
from exporter.web.fairness import FairQueue, origin
from exporter.web.live.view import NodeView, Views
from exporter.web.responses import refuse_plainly
from exporter.web.server.counts import uncounted
from exporter.web.static import HEADERS
from exporter.web.threads import Threads

STREAM_PATH = "/api/v1/stream"
MOST_STREAMS = 32
EVENT_SECONDS = 1.0
"""Faster snapshots are skipped."""
HEARTBEAT_SECONDS = 15.0

RETRY = b"retry: 2000\n\n"
HEARTBEAT = b": still here\n\n"


class Event(NamedTuple):
    """One event, ready to be sent."""

    data: bytes
    sequence: int
    base: int | None
    """The sequence of the view that a diff applies to."""


def encoded(name: str, sequence: int, value: dict[str, Any]) -> bytes:
    """Return an event on the wire; the JSON has no line breaks."""
    text = json.dumps(value, separators=(",", ":"))
    return f"id: {sequence}\nevent: {name}\ndata: {text}\n\n".encode("ascii")


class _Viewer:
    """One open stream; all in the event loop."""

    def __init__(self, client: str) -> None:
        self.client = client
        """The address for which streams are shared fairly."""
        self.gone = False
        self._event: Event | None = None
        """Backpressure: a viewer that is slow has only the newest event, which follows none."""
        self._news = asyncio.Event()

    def put(self, event: Event) -> None:
        self._event = event
        self._news.set()

    def end(self) -> None:
        self.gone = True
        self._news.set()

    async def news(self) -> Event | None:
        """Wait for an event; return None if there was none for a while."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._news.wait(), HEARTBEAT_SECONDS)
        self._news.clear()
        event, self._event = self._event, None
        return event


class Streams:
    """Every open stream, and the ASGI application behind them."""

    def __init__(
        self,
        views: Views,
        clock: Callable[[], float] = time.monotonic,
        refused: Callable[[str], None] = uncounted,
    ) -> None:
        """Take the views, and what to call for each refused stream."""
        self.views = views
        self._refused = refused
        self._clock = clock
        self._thread = Threads("stream")
        self._viewers: FairQueue[_Viewer] = FairQueue(MOST_STREAMS)
        """Changed in the event loop only; the publisher checks whether it is empty."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._shown: NodeView | None = None
        """The view after all events so far; None without viewers."""
        self._whole: Event | None = None
        self._published_at: float | None = None
        self._gap = 0.0
        """Seconds between the last two snapshots."""
        self._sent_at: float | None = None

    # The publisher's thread.

    def publish(self, _: Snapshot) -> None:
        """Send all viewers the difference between the last view and that of the new snapshot."""
        if not self._viewers and self._shown is None:
            return
        with self._lock:
            before = self._shown
            if not self._viewers or before is None:  # no viewers, or none has the whole view yet
                self._shown = self._whole = self._sent_at = self._published_at = None
                return
            if not self._due():
                return
            after = self.views.latest()
            self._shown = after
            sequence = after["sequence"]
            data = encoded("diff", sequence, merge_patch(before, after))
            event = Event(data, sequence, before["sequence"])
            loop = self._loop
            if loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._deliver, event)

    def _due(self) -> bool:
        """Return whether an event is due: one per second, give or take half an interval."""
        now, sent = self._clock(), self._sent_at
        gap, self._gap = self._gap, now - (self._published_at or now)
        self._published_at = now
        # After a late event the next one may follow early.
        if sent is not None and now - sent + max(gap, self._gap) / 2 < EVENT_SECONDS:
            return False
        self._sent_at = now
        return True

    # Any thread but the event loop's.

    def _all(self) -> Event:
        """Return the event with the whole view, which the next diff applies to."""
        with self._lock:
            if self._shown is None:
                self._shown = self.views.latest()
            sequence = self._shown["sequence"]
            if self._whole is None or self._whole.sequence != sequence:
                self._whole = Event(encoded("snapshot", sequence, self._shown), sequence, None)
            return self._whole

    # The event loop.

    def _deliver(self, event: Event) -> None:
        for viewer in self._viewers:
            viewer.put(event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one viewer until it disconnects."""
        viewer = _Viewer(origin((scope.get("client") or ("",))[0]))
        evicted = self._viewers.put(viewer.client, viewer)
        if evicted is not None:
            self._refused("streams")
            evicted.end()
        if evicted is viewer:
            reason = f"{len(self._viewers)} streams are open, which is the limit"
            await refuse_plainly(scope, send, 503, reason, [(b"retry-after", b"5")])
            return
        self._loop = asyncio.get_running_loop()
        headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        headers += [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if scope["method"] != "HEAD":
                listener = asyncio.create_task(_until_gone(receive, viewer))
                try:
                    await self._serve(viewer, send)
                finally:
                    listener.cancel()
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._viewers.discard(viewer.client, viewer)

    async def _serve(self, viewer: _Viewer, send: Send) -> None:
        async def write(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        whole = await self._thread.run(self._all)
        await write(RETRY + whole.data)
        has = whole.sequence
        while not viewer.gone:
            event = await viewer.news()
            if viewer.gone:
                return
            if event is None:
                await write(HEARTBEAT)
            elif event.sequence > has:
                if event.base != has:
                    event = await self._thread.run(self._all)
                await write(event.data)
                has = event.sequence


async def _until_gone(receive: Receive, viewer: _Viewer) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    viewer.end()


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7396) from `before` to `after`, which has no None."""
    patch: dict[str, Any] = {}
    for name, value in after.items():
        old = before.get(name)
        if old == value:
            continue
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            patch[name] = merge_patch(old, value)
        else:
            patch[name] = value
    for name in before.keys() - after.keys():
        patch[name] = None
    return patch
