# SPDX-License-Identifier: Apache-2.0
"""One GET of the daemon ends in time, whoever answers."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from exporter.cli.config.coerce import URL
from exporter.cli.http_get import Answer, DaemonAddress, get
from exporter.errors import SourceError
from tests.cli.stub import speaking

HEAD = b"HTTP/1.1 200 OK\r\nDate: Mon, 21 Sep 2026 14:13:21 GMT\r\n\r\n"


def ask(url: str, seconds: float = 5.0, most_bytes: int = 10_000) -> Answer:
    return get(DaemonAddress(URL.parse(url)), "/x", seconds=seconds, most_bytes=most_bytes)


def test_an_answer() -> None:
    """Status, body and the daemon's clock."""
    with speaking(lambda connection: connection.sendall(HEAD + b"hello")) as url:
        answer = ask(url)

    assert answer == Answer(f"{url}/x", 200, b"hello", "Mon, 21 Sep 2026 14:13:21 GMT")


def test_a_body_is_cut() -> None:
    """Memory does not grow with what is sent."""
    with speaking(lambda connection: connection.sendall(HEAD + b"x" * 5000)) as url:
        assert ask(url, most_bytes=100).body == b"x" * 100


@pytest.mark.parametrize("first", [HEAD, HEAD[:-2], b"HTTP/1.1 2", b""])
def test_a_server_that_drips_is_left(first: bytes) -> None:
    """A byte at a time resets no deadline, in the head as in the body."""
    done = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(first)
        try:
            while not done.wait(0.01):
                connection.sendall(b"x")
        except OSError:
            pass

    with speaking(drip) as url:
        begun = time.monotonic()
        with pytest.raises(SourceError, match=r"/x: timed out$"):
            ask(url, seconds=0.2)
        done.set()
    assert time.monotonic() - begun < 5
