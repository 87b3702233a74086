# SPDX-License-Identifier: Apache-2.0
"""HTTP servers that tests run in the place of others."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import HTTPServer

POLL_SECONDS = 0.01
NONE: Mapping[str, str] = {}


def free_port() -> int:
    """Return a port for a program that does not say which one it chose."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def answer_of(
    url: str, data: bytes | None = None, headers: Mapping[str, str] = NONE, timeout: float = 30
) -> bytes:
    """Return what a server of this machine answers to a GET, or to a POST of data, past proxies."""
    request = urllib.request.Request(url, data, dict(headers))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=timeout) as answer:
        body: bytes = answer.read()
        return body


@contextmanager
def serving(server: HTTPServer) -> Iterator[int]:
    """Answer requests in a thread until the end of the block; give the port."""
    thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
