# SPDX-License-Identifier: Apache-2.0
"""Over TLS the same limits hold."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import pytest
import trustme

from exporter.web.access.reload import ActiveConfig, WebConfigWatcher
from exporter.web.server.limits import Limits, Phase
from tests.waiting import wait_until
from tests.web.server.site import GET, LARGE, Site


@dataclass
class Watcher:
    """The web configuration, which a test changes."""

    active: ActiveConfig
    error: Exception | None = None

    async def look(self) -> ActiveConfig:
        if self.error is not None:
            raise self.error
        return self.active


def certified(authority: trustme.CA) -> ssl.SSLContext:
    """Return a server's context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("node", "127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@dataclass
class Secure:
    """A site with TLS, whose configuration a test changes."""

    authority: trustme.CA = field(default_factory=trustme.CA)
    config: Watcher = field(init=False)
    site: Site = field(init=False)

    def __post_init__(self) -> None:
        self.config = Watcher(ActiveConfig(certified(self.authority)))
        self.site = Site(Limits(connections=4), cast(WebConfigWatcher, self.config))

    def context(self, *names: str) -> ssl.SSLContext:
        """Return a client's, with a certificate if it has names."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if names:
            self.authority.issue_cert(*names).configure_cert(context)
        return context

    def connect(self, *names: str) -> ssl.SSLSocket:
        client = socket.socket()
        client.settimeout(5)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", self.site.port))
        return self.context(*names).wrap_socket(client, server_hostname="node")

    def ask(self, *names: str) -> bytes:
        """Return what comes until the end; nothing if the connection is refused."""
        data = b""
        try:
            with self.connect(*names) as client:
                client.sendall(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") % b"/")
                while part := client.recv(1 << 16):
                    data += part
        except OSError:
            return data
        return data


@pytest.fixture(scope="module", name="authority")
def _authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(name="secure")
def _secure(authority: trustme.CA) -> Iterator[Secure]:
    secure = Secure(authority)
    with secure.site.open():
        yield secure


def test_requests_arrive_with_their_scheme(
    secure: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    """And the scheme that they came by."""
    for _ in range(30):
        assert secure.ask().endswith(b"GET /\n")
    scope = secure.site.scopes[-1]
    assert not caplog.records
    assert scope["scheme"] == "https"


def test_what_is_no_tls_is_refused(secure: Secure, caplog: pytest.LogCaptureFixture) -> None:
    """It counts, and is no line."""
    with socket.create_connection(("127.0.0.1", secure.site.port), 5) as client:
        client.sendall(GET % b"/")
        while client.recv(1 << 16):
            pass
    wait_until(lambda: secure.site.count.connections_refused_total["handshake"] == 1)
    wait_until(lambda: not secure.site.connections)
    assert not caplog.records


def test_an_error_in_reading_the_configuration_refuses_connections(
    secure: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and leaves no connection behind."""
    secure.config.error = RuntimeError("a mistake")
    assert secure.ask() == b""
    wait_until(lambda: len(secure.site.connections) == 0)
    assert "a connection was not accepted" in caplog.text


def test_large_answers_arrive_whole(secure: Secure) -> None:
    """Piece by piece."""
    with secure.connect() as client:
        client.sendall(GET % b"/large")
        data = b""
        while len(data.partition(b"\r\n\r\n")[2]) < len(LARGE):
            data += client.recv(1 << 20)
    assert data.endswith(LARGE)


def test_it_stops_while_connections_end(secure: Secure, caplog: pytest.LogCaptureFixture) -> None:
    """Also without a close_notify of the client."""
    request = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") % b"/"
    with secure.connect() as client:
        client.sendall(request)
        while client.recv(1 << 20):
            pass
        secure.site.server.request_stop()
        secure.site.wait()
    assert not caplog.records


def test_a_client_without_certificate_gets_the_alert(secure: Secure) -> None:
    """The alert arrives although the client has sent a request meanwhile."""
    context = certified(secure.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    secure.config.active = ActiveConfig(context)
    with secure.connect() as client:
        client.sendall(GET % b"/" + b"x" * 10_000)
        with pytest.raises(ssl.SSLError, match="certificate required"):
            client.recv(1)
    assert secure.site.count.connections_refused_total["handshake"] == 1


def test_a_broken_record_during_an_answer_ends_the_connection(
    secure: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a line in the log, which any client could fill."""
    site = secure.site
    with secure.connect() as client:
        client.sendall(GET % b"/slow")
        wait_until(lambda: site.scopes)
        [connection] = site.connections
        os.write(client.fileno(), b"no record of TLS")
        wait_until(lambda: connection.activity.phase is Phase.CLOSING)
        site.released.set()
        wait_until(lambda: not site.connections)
    assert not caplog.records
