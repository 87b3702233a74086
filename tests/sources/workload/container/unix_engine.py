# SPDX-License-Identifier: Apache-2.0
"""A container engine on a Unix socket that answers what a test wants."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

NOBODY_UID = 65534


def answer(body: bytes, *, status: int = 200, server: str = "Docker/27.3.1 (linux)") -> bytes:
    """An answer as these engines give it."""
    head = f"HTTP/1.0 {status} X\r\nServer: {server}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def listing(*containers: dict[str, Any], server: str = "Docker/27.3.1 (linux)") -> bytes:
    """An answer that lists containers."""
    return answer(json.dumps(containers).encode(), server=server)


def container(number: str, *called: str, **more: Any) -> dict[str, Any]:
    """A container in a listing."""
    return {"Id": number, "Names": list(called), "Labels": {}, "State": "running", **more}


class UnixEngine:
    """Answers each connection with whatever `says` is at the time: bytes, or a function."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.says: bytes | Callable[[socket.socket], None] = listing()
        self.asked: list[bytes] = []
        """The head of each request."""
        engine = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                engine.asked.append(self.request.recv(100_000))
                with contextlib.suppress(OSError):  # the client may have had enough
                    if callable(engine.says):
                        engine.says(self.request)
                    else:
                        self.request.sendall(engine.says)

        self._server = socketserver.ThreadingUnixStreamServer(self.path, Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def filters(self) -> list[list[str]]:
        """The ids of each question so far."""
        queries = [parse_qs(urlsplit(head.split()[1].decode()).query) for head in self.asked]
        return [json.loads(query["filters"][0])["id"] for query in queries]

    def stop(self, *, leave_file: bool = False) -> None:
        """Listen no more."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
        if not leave_file:
            Path(self.path).unlink(missing_ok=True)


@contextlib.contextmanager
def engine_at(path: Path, says: bytes) -> Iterator[UnixEngine]:
    """An engine that listens there until the end."""
    engine = UnixEngine(path)
    engine.says = says
    try:
        yield engine
    finally:
        engine.stop()


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket's, and that everybody may enter."""
    path = Path(tempfile.mkdtemp(prefix="engine-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextlib.contextmanager
def without_rights() -> Iterator[None]:
    """Be a user whom file permissions hold back; root is not."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY_UID)
    try:
        yield
    finally:
        os.seteuid(before)
