# SPDX-License-Identifier: Apache-2.0
"""Over TLS the same limits hold."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import pytest

from exporter.web.access.reload import ActiveConfig, WebConfigWatcher
from exporter.web.server.limits import Limits, Phase
from tests.waiting import wait_until
from tests.web.access.authority import authority, client_context, server
from tests.web.server.site import GET, LARGE, Site

LAST = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") % b"/"


@dataclass
class Watcher:
    """The web configuration, which a test changes."""

    active: ActiveConfig
    error: Exception | None = None

    async def look(self) -> ActiveConfig:
        if self.error is not None:
            raise self.error
        return self.active


def served(verify_mode: ssl.VerifyMode) -> ActiveConfig:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server().configure_cert(context)
    authority().configure_trust(context)
    context.verify_mode = verify_mode
    return ActiveConfig(context)


class Secure(Site):
    """A site with TLS, whose configuration a test changes."""

    def __init__(self) -> None:
        self.watcher = Watcher(served(ssl.CERT_OPTIONAL))
        super().__init__(Limits(connections=4), cast(WebConfigWatcher, self.watcher))

    def encrypted(self, data: bytes) -> ssl.SSLSocket:
        """Return a connection that has sent this."""
        plain = socket.create_connection(("127.0.0.1", self.port), 5)
        client = client_context().wrap_socket(plain, server_hostname="localhost")
        client.sendall(data)
        return client


def rest(client: socket.socket) -> bytes:
    """Read to the end."""
    data = b""
    while part := client.recv(1 << 20):
        data += part
    return data


@pytest.fixture(name="secure")
def _secure() -> Iterator[Secure]:
    secure = Secure()
    with secure.open():
        yield secure


def test_requests_arrive_with_their_scheme(
    secure: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    """And the scheme that they came by."""
    for _ in range(30):
        with secure.encrypted(LAST) as client:
            assert rest(client).endswith(b"GET /\n")
    assert not caplog.records
    assert secure.scopes[-1]["scheme"] == "https"


def test_what_is_no_tls_is_refused(secure: Secure, caplog: pytest.LogCaptureFixture) -> None:
    """It counts, and is no line."""
    secure.ask(GET % b"/")
    wait_until(lambda: secure.count.connections_refused_total["handshake"] == 1)
    wait_until(lambda: not secure.connections)
    assert not caplog.records


def test_an_error_in_reading_the_configuration_refuses_connections(
    secure: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and leaves no connection behind."""
    secure.watcher.error = RuntimeError("a mistake")
    with pytest.raises(OSError):
        secure.encrypted(LAST)
    wait_until(lambda: len(secure.connections) == 0)
    assert "a connection was not accepted" in caplog.text


def test_large_answers_arrive_whole(secure: Secure) -> None:
    """Piece by piece."""
    with secure.encrypted(LAST.replace(b"/ ", b"/large ")) as client:
        assert rest(client).endswith(LARGE)


def test_it_stops_while_connections_end(secure: Secure, caplog: pytest.LogCaptureFixture) -> None:
    """Also without a close_notify of the client."""
    with secure.encrypted(LAST) as client:
        rest(client)
        secure.server.request_stop()
        secure.wait()
    assert not caplog.records


def test_a_client_without_certificate_gets_the_alert(secure: Secure) -> None:
    """The alert arrives although the client has sent a request meanwhile."""
    secure.watcher.active = served(ssl.CERT_REQUIRED)
    with (
        secure.encrypted(GET % b"/" + b"x" * 10_000) as client,
        pytest.raises(ssl.SSLError, match="certificate required"),
    ):
        client.recv(1)
    assert secure.count.connections_refused_total["handshake"] == 1


def test_a_broken_record_during_an_answer_ends_the_connection(
    secure: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a line in the log, which any client could fill."""
    with secure.encrypted(GET % b"/slow") as client:
        wait_until(lambda: secure.scopes)
        [connection] = secure.connections
        os.write(client.fileno(), b"no record of TLS")
        wait_until(lambda: connection.activity.phase is Phase.CLOSING)
        secure.released.set()
        wait_until(lambda: not secure.connections)
    assert not caplog.records
