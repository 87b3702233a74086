# SPDX-License-Identifier: Apache-2.0
"""HTTP servers that tests run in the place of others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer

POLL_SECONDS = 0.01


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
