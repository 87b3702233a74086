# SPDX-License-Identifier: Apache-2.0
"""A unary gRPC call over a Unix socket: one request without fields, one answer."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING
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
_CHUNK_BYTES = 64 * 1024

Code = IntEnum(
    "Code",
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS "
    "PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED "
    "INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED",
    start=0,
)
"""gRPC's status codes."""


class CallFailed(Exception):
    """There is no answer; says why in one line."""

    def __init__(self, why: str, code: int | None = None) -> None:
        super().__init__(why)
        self.code = code
        """gRPC's, where the server gave one."""


def call(path: str, method: str, seconds: float = TOTAL_SECONDS) -> bytes | None:
    """Return the message that answers a request to a socket; None where there is no such file.

    `method` is such as /v1.PodResourcesLister/List; the answer has to be complete in `seconds`.

    Raises:
        CallFailed: there is no answer.
    """
    deadline = Deadline(seconds)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(min(CONNECT_SECONDS, deadline.left()))
            connection.connect(path)
            return _exchange(connection, path, method, deadline)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ImportError as error:
        raise CallFailed(f"the package h2 is not installed: {EXTRA}") from error
    except TimeoutError as error:
        raise CallFailed(f"{path} does not answer in time") from error
    except OSError as error:
        raise CallFailed(f"{path}: {error.strerror or error}") from error


def _exchange(connection: socket.socket, path: str, method: str, deadline: Deadline) -> bytes:
    from h2 import events, exceptions

    http = _request(method)
    headers: dict[bytes, bytes] = {}
    body = bytearray()
    while True:
        connection.settimeout(deadline.left())
        connection.sendall(http.data_to_send())
        chunk = connection.recv(_CHUNK_BYTES)
        if not chunk:
            raise CallFailed(f"{path} closes the connection before its answer is complete")
        try:
            received = http.receive_data(chunk)
        except exceptions.H2Error as error:
            raise CallFailed(f"{path} does not keep to HTTP/2: {error}") from error
        for event in received:
            if isinstance(event, events.ResponseReceived | events.TrailersReceived):
                headers.update((bytes(name), bytes(value)) for name, value in event.headers)
            elif isinstance(event, events.DataReceived):
                body += event.data
                if len(body) > PREFIX_BYTES + MOST_BYTES:
                    raise CallFailed(f"{path} has an answer of more than {MOST_BYTES} bytes")
            elif isinstance(event, events.StreamReset | events.ConnectionTerminated):
                raise CallFailed(f"{path} breaks off its answer (error {event.error_code!s})")
            elif isinstance(event, events.StreamEnded):
                return _message(path, headers, bytes(body))


def _request(method: str) -> H2Connection:
    """Return a connection with the request in its buffer, and windows that fit any answer."""
    from h2.config import H2Configuration
    from h2.connection import H2Connection

    http = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    http.initiate_connection()
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
    for window in (stream, None):  # and that of the connection
        http.increment_flow_control_window(MOST_BYTES, window)
    return http


def _message(path: str, headers: Mapping[bytes, bytes], body: bytes) -> bytes:
    """Return the message of a complete answer."""
    status = headers.get(b"grpc-status", b"")
    if not status.isdigit():
        raise CallFailed(f"{path} does not answer with gRPC")
    code = int(status)
    if code:
        name = Code(code).name if code < len(Code) else f"status {code}"
        said = unquote(headers.get(b"grpc-message", b"").decode("latin-1"))
        raise CallFailed(f"{path} says {name}: {said}".rstrip(": "), code)
    if len(body) < PREFIX_BYTES or len(body) != PREFIX_BYTES + int.from_bytes(body[1:5], "big"):
        raise CallFailed(f"{path} does not answer with one whole message")
    return body[PREFIX_BYTES:]
