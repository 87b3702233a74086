# SPDX-License-Identifier: Apache-2.0
"""Asks a gRPC server on a Unix socket one question that has one answer."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from exporter.exchange import Deadline

if TYPE_CHECKING:  # of the extra, and imported only where there is a kubelet
    from h2.connection import H2Connection

EXTRA = "pip install 'roofline-exporter[kubernetes]'"
CONNECT_SECONDS = 2.0
TOTAL_SECONDS = 5.0
MOST_BYTES = 16 * 1024 * 1024
"""Of an answer: what the kubelet's own clients take."""

PREFIX_BYTES = 5
"""Before each message: whether it is compressed, and its length."""
_SLACK_BYTES = 64 * 1024
_CHUNK_BYTES = 64 * 1024
_MOST_EVENTS = 20_000
"""Frames without content would otherwise be read until the time is over; an answer of 16 MiB has a
thousand."""
_MOST_TEXT = 200

RESOURCE_EXHAUSTED = 8
CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""gRPC's, by their numbers."""


class CallFailed(Exception):
    """There is no answer; says why in one line."""

    def __init__(self, why: str, code: int | None = None) -> None:
        super().__init__(why)
        self.code = code
        """gRPC's, where the server gave one."""


def call(path: str, method: str, seconds: float = TOTAL_SECONDS) -> bytes:
    """Send a request without fields; return the message that it is answered with.

    Args:
        path: of the socket.
        method: such as /v1.PodResourcesLister/List.
        seconds: until the answer has to be complete.

    Raises:
        CallFailed: there is none.
    """
    try:
        from h2.exceptions import H2Error
    except ImportError as error:
        raise CallFailed(f"the package h2 is not installed: {EXTRA}") from error
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            return _ask(connection, path, method, Deadline(seconds))
    except TimeoutError as error:
        raise CallFailed(f"{path} does not answer in time") from error
    except OSError as error:
        raise CallFailed(f"{path}: {error.strerror or error}") from error
    except H2Error as error:
        raise CallFailed(f"{path} does not keep to HTTP/2: {_printable(str(error))}") from error


def _ask(connection: socket.socket, path: str, method: str, deadline: Deadline) -> bytes:
    connection.settimeout(min(CONNECT_SECONDS, deadline.left()))
    connection.connect(path)
    http = _begun(method)
    answer = _Answer(path)
    events = 0
    while True:
        connection.settimeout(deadline.left())
        chunk = _exchange(connection, http.data_to_send())
        if not chunk:
            raise CallFailed(f"{path} closes the connection before its answer is complete")
        for event in http.receive_data(chunk):
            events += 1
            if events > _MOST_EVENTS:
                raise CallFailed(f"{path} sends more than an answer can have")
            if answer.take(event):
                return answer.message()


def _exchange(connection: socket.socket, data: bytes) -> bytes:
    """Send, then return what has arrived; nothing once the other side has hung up.

    It may have done so right after its answer, which then is still there to be read.
    """
    with suppress(BrokenPipeError):
        connection.sendall(data)
    try:
        return connection.recv(_CHUNK_BYTES)
    except ConnectionResetError:
        return b""


def _begun(method: str) -> H2Connection:
    """Return a connection on which the request has been made.

    All that an answer may have fits the windows, so that they need not be moved.
    """
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.settings import SettingCodes, Settings

    http = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    window = MOST_BYTES + _SLACK_BYTES
    http.local_settings = Settings(
        client=True,
        initial_values={
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: window,
            SettingCodes.MAX_HEADER_LIST_SIZE: 16 * 1024,
        },
    )
    http.initiate_connection()
    http.increment_flow_control_window(window - 65_535)
    stream = http.get_next_available_stream_id()
    http.send_headers(
        stream,
        [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "roofline-exporter"),
        ],
    )
    http.send_data(stream, bytes(PREFIX_BYTES), end_stream=True)
    return http


class _Answer:
    """What has arrived of the answer."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._headers: Mapping[bytes, bytes] = {}
        self._body = bytearray()

    def take(self, event: Any) -> bool:
        """Take an event of the connection; return whether the answer has ended."""
        from h2 import events

        if isinstance(event, events.ResponseReceived):
            self._headers = _mapping(event.headers)
            self._check_head()
        elif isinstance(event, events.TrailersReceived):
            self._headers = {**self._headers, **_mapping(event.headers)}
        elif isinstance(event, events.DataReceived):
            self._body += event.data
            self._check_prefix()
        elif isinstance(event, events.StreamReset):
            raise CallFailed(f"{self._path} breaks off its answer (error {event.error_code!s})")
        elif isinstance(event, events.ConnectionTerminated):
            raise CallFailed(f"{self._path} is going away (error {event.error_code!s})")
        return isinstance(event, events.StreamEnded)

    def message(self) -> bytes:
        """Return the message of an answer that has ended."""
        status = self._headers.get(b"grpc-status")
        if status is None or not status.isdigit() or len(status) > 4:
            raise CallFailed(f"{self._path} ends its answer without a status of gRPC")
        code = int(status)
        if code:
            name = CODES[code] if code < len(CODES) else f"status {code}"
            said = unquote(self._headers.get(b"grpc-message", b"").decode("latin-1"))
            raise CallFailed(f"{self._path} says {name}: {_printable(said)}".rstrip(": "), code)
        if self._size() is None or len(self._body) != PREFIX_BYTES + (self._size() or 0):
            raise CallFailed(f"{self._path} ends its answer in the middle of a message")
        return bytes(memoryview(self._body)[PREFIX_BYTES:])

    def _check_head(self) -> None:
        status = self._headers.get(b":status", b"")
        if status != b"200":
            raise CallFailed(f"{self._path} answers with HTTP status {_printable(repr(status))}")
        kind = self._headers.get(b"content-type", b"")
        if not kind.startswith(b"application/grpc"):
            raise CallFailed(f"{self._path} does not answer with gRPC: {_printable(repr(kind))}")

    def _check_prefix(self) -> None:
        size = self._size()
        if size is None:
            return
        if self._body[0]:
            raise CallFailed(f"{self._path} compresses its answer, which nobody asked for")
        if size > MOST_BYTES:
            raise CallFailed(f"{self._path} has an answer of {size} bytes, more than {MOST_BYTES}")
        if len(self._body) > PREFIX_BYTES + size:
            raise CallFailed(f"{self._path} sends more than one message")

    def _size(self) -> int | None:
        """Return the length of the message, once it is known."""
        if len(self._body) < PREFIX_BYTES:
            return None
        return int.from_bytes(self._body[1:PREFIX_BYTES], "big")


def _mapping(headers: Iterable[tuple[Any, Any]]) -> dict[bytes, bytes]:
    return {bytes(name): bytes(value) for name, value in headers}


def _printable(text: str) -> str:
    """Return what may stand in a line of the log."""
    return "".join(each if each.isprintable() else "?" for each in text[:_MOST_TEXT])
