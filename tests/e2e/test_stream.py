# SPDX-License-Identifier: Apache-2.0
"""The live stream of the running daemon: its end, and its limit."""

from __future__ import annotations

import contextlib
from typing import Any

from tests.e2e.conftest import StartDaemon
from tests.e2e.daemons import Daemon, StreamClient
from tests.e2e.processes import retry_once

STOP_SECONDS = 1.5
"""The promise is 1 s; the rest is the start of `kill` and the end of the interpreter."""
GPUS = 8


def connect(clients: contextlib.ExitStack, daemon: Daemon, **options: Any) -> StreamClient:
    client = StreamClient(daemon.port, **options)
    clients.callback(client.close)
    return client


def demo(start: StartDaemon, *flags: str) -> Daemon:
    return start({}, "--demo", "--no-source.training", *flags, wait_for=GPUS)


@retry_once
def test_streams_end_when_the_daemon_stops(start: StartDaemon) -> None:
    """Open streams end properly and do not hold up the end of the daemon."""
    daemon = demo(start)
    with contextlib.ExitStack() as clients:
        viewers = [connect(clients, daemon) for _ in range(10)]
        for viewer in viewers:
            viewer.read_until(b"event: snapshot")
        code, seconds = daemon.stop()
        assert code == 0, daemon.lines()
        assert seconds < STOP_SECONDS
        for viewer in viewers:
            viewer.read_to_end()
            assert viewer.data.endswith(b"0\r\n\r\n")
    assert not daemon.lines("Traceback")
    assert not daemon.lines("level=error")
