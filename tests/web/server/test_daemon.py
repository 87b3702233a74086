# SPDX-License-Identifier: Apache-2.0
"""The daemon itself under what the limits are for: strangers, a stop."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.daemons import Daemon, Page
from tests.waiting import wait_until

START = ("--demo", "--no-source.training")
Start = Callable[..., Daemon]


@pytest.fixture(name="start")
def _start(tmp_path: Path) -> Iterator[Start]:
    """Starts daemons that serve simulated GPUs, and ends them."""
    daemons: list[Daemon] = []

    def start(*flags: str) -> Daemon:
        daemons.append(Daemon(tmp_path / str(len(daemons)), {}, (*START, *flags)))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.kill()


def count(page: Page, family: str, reason: str) -> float:
    return page.value(f"roofline_exporter_{family}_total", reason=reason)


def test_another_host_is_refused(start: Start) -> None:
    """A page that made its name this node's address reads nothing."""
    daemon = start("--web.allowed-hosts=.corp.example")
    for path in ("/metrics", "/", "/api/v1/gpus", "/api/v1/stream", "/none"):
        answer = daemon.get(path, {"Host": "evil.example"})
        assert answer.status == 421, path
        assert "--web.allowed-hosts" in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert daemon.get("/-/healthy", {"Host": "evil.example"}).status == 200
    assert daemon.get("/metrics", {"Host": "gpu1.corp.example:19400"}).status == 200
    wait_until(lambda: count(daemon.metrics(), "requests_refused", "host") == 5, 5)


@pytest.mark.slow
def test_it_stops_in_time_with_500_stuck_connections(
    start: Start, record_property: Callable[[str, object], None]
) -> None:
    """With exit code 0, and no line for each of them."""
    daemon = start("--web.max-connections-per-address=510")
    requests = (
        b"",
        b"GET /metrics HTTP/1.1\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 30,
        b"GET /api/v1/stream HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 30,
    )
    clients = []
    for number in range(500):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", daemon.port))
        client.sendall(requests[number % len(requests)])
        clients.append(client)
    time.sleep(1)
    began = time.monotonic()
    assert daemon.get("/metrics").status == 200
    scrape = time.monotonic() - began
    lines = len(daemon.lines())
    code, seconds = daemon.stop()
    for client in clients:
        client.close()

    record_property("measured", f"500 stuck: scrape {scrape * 1e3:.0f} ms, stop {seconds:.1f} s")
    assert code == 0
    assert seconds < 5
    assert len(daemon.lines()) <= lines + 2, daemon.lines()[lines:]
