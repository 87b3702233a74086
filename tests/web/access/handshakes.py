# SPDX-License-Identifier: Apache-2.0
"""TLS between two real sockets of this machine."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from dataclasses import dataclass, field
from typing import Any

GREETING = b"accepted"
SECONDS = 5.0


@dataclass
class Agreed:
    """What both ends found out."""

    greeting: bytes = b""
    """Empty if the server refused the client."""
    problem: str = ""
    version: str | None = None
    cipher: str = ""
    resumed: bool = False
    protocol: str | None = None
    session: ssl.SSLSession | None = field(default=None, repr=False)
    peer: dict[str, Any] | None = None
    """The client's certificate, as the server sees it."""


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> Agreed:
    """Connect; the server greets accepted clients."""
    agreed = Agreed()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SECONDS)
        thread = threading.Thread(target=_greet, args=(listener, server, agreed))
        thread.start()
        try:
            with socket.create_connection(listener.getsockname(), SECONDS) as plain:
                _ask(plain, client, session, agreed)
        finally:
            thread.join()
    return agreed


def _greet(listener: socket.socket, context: ssl.SSLContext, agreed: Agreed) -> None:
    plain, _ = listener.accept()
    with plain, contextlib.suppress(OSError):
        plain.settimeout(SECONDS)
        with context.wrap_socket(plain, server_side=True) as encrypted:
            agreed.peer = encrypted.getpeercert()
            encrypted.sendall(GREETING)
            encrypted.recv(1)  # until the client has gone


def _ask(
    plain: socket.socket, context: ssl.SSLContext, session: ssl.SSLSession | None, agreed: Agreed
) -> None:
    try:
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as encrypted:
            # With TLS 1.3, a client learns that it is refused with the first answer.
            agreed.greeting = encrypted.recv(100)
            agreed.version = encrypted.version()
            agreed.cipher = (encrypted.cipher() or ("",))[0]
            agreed.resumed = bool(encrypted.session_reused)
            agreed.protocol = encrypted.selected_alpn_protocol()
            agreed.session = encrypted.session
    except OSError as error:
        agreed.problem = getattr(error, "reason", None) or str(error)
