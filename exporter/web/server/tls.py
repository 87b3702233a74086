# SPDX-License-Identifier: Apache-2.0
"""Encrypts one connection, in memory: asyncio's own TLS keeps 256 kB for each connection."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Mapping
from typing import Any

READ_BYTES = 64 * 1024


class TlsSession:
    """The server's side of TLS; `send` takes what is to go to the client."""

    def __init__(self, context: ssl.SSLContext, send: Callable[[bytes], object]) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._send = send
        self.is_established = False
        self.is_ended = False
        """Whether the client has said that it sends no more."""

    @property
    def client_certificate(self) -> Mapping[str, Any] | None:
        """The client's verified certificate, if it has shown one."""
        return self._tls.getpeercert()

    def received(self, data: bytes) -> bytes:
        """Take encrypted bytes; return the plain ones, empty during the handshake.

        After ssl.SSLError, the client has been told that they are no TLS or it is not trusted.
        """
        self._incoming.write(data)
        parts = []
        try:
            if not self.is_established:
                self._tls.do_handshake()
                self.is_established = True
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
            self.is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        finally:
            self._flush()
        return b"".join(parts)

    def write(self, data: bytes | memoryview) -> None:
        """Encrypt and send this."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        self._flush()

    def close(self) -> None:
        """Tell the client that no more is sent."""
        with contextlib.suppress(ssl.SSLError):  # it need not answer
            self._tls.unwrap()
        self._flush()

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            self._send(data)
