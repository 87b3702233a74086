# SPDX-License-Identifier: Apache-2.0
"""HTTP servers that tests run in the place of others."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer

POLL_SECONDS = 0.01


def free_port() -> int:
    """Return a port for a program that does not say which one it chose."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


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
