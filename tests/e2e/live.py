# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of a daemon in this process, on a real port, showing what a test makes."""

from __future__ import annotations

import threading

from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.model.snapshot import Snapshot
from exporter.specs import load_specs
from exporter.web.app import create_app
from exporter.web.live.stream import Streams
from exporter.web.live.view import Views
from exporter.web.server.counts import Counts
from exporter.web.server.limits import Limits
from exporter.web.server.server import Server, listen
from exporter.web.store import Store
from tests.waiting import wait_until


class Live:
    """A server in a thread; `publish` does what the publisher does at the end of a tick."""

    def __init__(self, *snapshots: Snapshot, interval_seconds: float = 1.0) -> None:
        self._store = Store()
        self._streams = Streams(Views(self._store, lambda: interval_seconds))
        specs = load_specs()
        app = create_app(
            store=self._store,
            streams=self._streams,
            pages=Pages(RenderOptions()),
            specs=lambda: specs,
            poll_interval_seconds=lambda: interval_seconds,
        )
        self._listener = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._server = Server(app, self._listener, limits=Limits(), counts=Counts())
        self._thread = threading.Thread(target=self._server.run)
        for snapshot in snapshots:
            self.publish(snapshot)
        self._thread.start()
        wait_until(lambda: self._server.started, what="the server")

    def publish(self, snapshot: Snapshot) -> None:
        """Show this from now on."""
        self._store.publish(snapshot)
        self._streams.publish(snapshot)

    def stop(self) -> None:
        """End all streams and the server."""
        self._server.request_stop()
        self._thread.join(10)
        self._listener.close()
        assert not self._thread.is_alive()
