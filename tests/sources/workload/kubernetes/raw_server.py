# SPDX-License-Identifier: Apache-2.0
"""A server on a Unix socket that answers one call as a script says, also wrongly."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived

HEAD = ((":status", "200"), ("content-type", "application/grpc"))
OK = (("grpc-status", "0"),)


class Peer:
    """The server's side of a connection on which a call has arrived."""

    def __init__(self, connection: socket.socket, http: H2Connection, stream: int) -> None:
        self.connection = connection
        self.http = http
        self.stream = stream

    def head(self, *headers: tuple[str, str], end: bool = False) -> None:
        self.http.send_headers(self.stream, headers or HEAD, end_stream=end)
        self.flush()

    def data(self, data: bytes, *, end: bool = False) -> None:
        self.http.send_data(self.stream, data, end_stream=end)
        self.flush()

    def trailers(self, *headers: tuple[str, str]) -> None:
        self.http.send_headers(self.stream, headers or OK, end_stream=True)
        self.flush()

    def flush(self) -> None:
        self.connection.sendall(self.http.data_to_send())

    def raw(self, data: bytes) -> None:
        self.connection.sendall(data)

    def wait_for_end(self) -> None:
        """Wait until the client hangs up."""
        while self.connection.recv(65536):
            pass


def framed(message: bytes, *, compressed: int = 0, size: int | None = None) -> bytes:
    """A message as gRPC sends it; `size` is what it says of its length."""
    length = len(message) if size is None else size
    return bytes([compressed]) + length.to_bytes(4, "big") + message


@contextmanager
def serving(path: Path, script: Callable[[Peer], None]) -> Iterator[list[Exception]]:
    """Serve one connection in a thread; what goes wrong there is in the list."""
    failures: list[Exception] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(10)

        def run() -> None:
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(10)
                    _serve(connection, script)
            except (ConnectionError, BrokenPipeError):
                pass  # the client is free to hang up
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield failures
        finally:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as nobody:
                nobody.connect(str(path))
            thread.join()
    assert failures == []


def _serve(connection: socket.socket, script: Callable[[Peer], None]) -> None:
    http = H2Connection(H2Configuration(client_side=False))
    http.initiate_connection()
    connection.sendall(http.data_to_send())
    while True:
        chunk = connection.recv(65536)
        if not chunk:
            return
        for event in http.receive_data(chunk):
            if isinstance(event, RequestReceived):
                connection.sendall(http.data_to_send())
                script(Peer(connection, http, event.stream_id))
                return
        connection.sendall(http.data_to_send())


def answer_of(*headers: Sequence[tuple[str, str]]) -> Callable[[Peer], None]:
    """A script that sends only headers, the last of them at the end."""

    def script(peer: Peer) -> None:
        for number, each in enumerate(headers):
            peer.head(*each, end=number == len(headers) - 1)
        peer.wait_for_end()

    return script
