# SPDX-License-Identifier: Apache-2.0
"""An application on example snapshots, in which blocking the event loop is an error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from starlette.applications import Starlette
from starlette.testclient import TestClient

from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.model.snapshot import Snapshot
from exporter.specs import SpecBook, load_specs
from exporter.web.app import create_app
from exporter.web.live.stream import Streams
from exporter.web.live.view import Views
from exporter.web.store import Store
from tests import snapshots


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """Fail a test in which a handler blocks the event loop; the measuring of coverage may."""
    with blockbuster_ctx() as active:
        active.functions["threading.Lock.acquire"].can_block_in(
            "coverage/collector.py", {"lock_data"}
        )
        yield active


@pytest.fixture(scope="session")
def book() -> SpecBook:
    return load_specs()


@dataclass
class Daemon:
    """The HTTP side of a daemon whose snapshots and clock a test sets."""

    book: SpecBook
    now: float = 500.0
    poll_interval_seconds: float = 1.0
    store: Store = field(init=False)
    pages: Pages = field(init=False)
    views: Views = field(init=False)
    streams: Streams = field(init=False)
    refused: list[str] = field(default_factory=list)
    """Why requests were, as they are counted."""
    app: Starlette = field(init=False)
    client: TestClient = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store(clock=lambda: self.now)
        self.pages = Pages(RenderOptions())
        self.views = Views(self.store, lambda: self.poll_interval_seconds)
        self.streams = Streams(self.views, clock=lambda: self.now, refused=self.refused.append)
        self.app = create_app(
            store=self.store,
            streams=self.streams,
            pages=self.pages,
            specs=lambda: self.book,
            poll_interval_seconds=lambda: self.poll_interval_seconds,
            refused=self.refused.append,
        )
        self.client = TestClient(self.app)

    def publish(self, snapshot: Snapshot) -> None:
        """Do what the publisher does at the end of a tick."""
        self.store.publish(snapshot)
        self.pages.publish(snapshot)
        self.streams.publish(snapshot)


@pytest.fixture
def daemon(book: SpecBook) -> Iterator[Daemon]:
    """A daemon before its first snapshot."""
    daemon = Daemon(book)
    with daemon.client:
        yield daemon


@pytest.fixture
def client(daemon: Daemon) -> TestClient:
    """A client of a daemon with GPUs of every kind."""
    daemon.publish(snapshots.EXAMPLES["mixed"])
    return daemon.client
