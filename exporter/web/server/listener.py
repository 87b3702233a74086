# SPDX-License-Identifier: Apache-2.0
"""The listening socket; what is set on it, every accepted connection inherits."""

from __future__ import annotations

import contextlib
import os
import socket

from exporter.errors import ExporterError

BACKLOG = 64
RECEIVE_BYTES = 32 * 1024
"""The kernel doubles it. What a client sends ahead stays in the kernel, which counts it as ours."""
UNSENT_BYTES = 64 * 1024
"""What the kernel takes of an answer beyond what is on its way to the client."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, or raise ExporterError; without a host on every address."""
    try:
        listener = _bound(host, port)
    except OSError as error:
        # Its own text repeats the address.
        reason = os.strerror(error.errno) if error.errno else error
        raise ExporterError(f"cannot listen on {host or '*'}:{port}: {reason}") from error
    # asyncio would set it only on sockets made with an explicit protocol; without it the body of an
    # answer waits 40 ms for the client's delayed ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    with contextlib.suppress(OSError):  # some sandboxes do not have it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    return listener


def _bound(host: str, port: int) -> socket.socket:
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # IPv6 may be switched off
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
    return socket.create_server(("", port), backlog=BACKLOG)
