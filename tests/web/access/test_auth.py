# SPDX-License-Identifier: Apache-2.0
"""What a request passes before it is answered: over real sockets, as the daemon serves them."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp, Receive, Scope, Send

from exporter.web.access.auth import CHALLENGE, AuthMiddleware, Bucket
from exporter.web.access.config import RateLimit
from exporter.web.access.reload import WebConfigWatcher
from tests.waiting import wait_until
from tests.web.access.authority import ca_pem, client, client_context, write_files
from tests.web.access.test_reload import TEXT
from tests.web.server.site import Site

PLAIN = "rate_limit: {interval: 0}\n"
TLS = "tls_server_config: {cert_file: node.crt, key_file: node.key}\n"


def user(name: str, password: bytes) -> str:
    return f"  {name}: {bcrypt.hashpw(password, bcrypt.gensalt(4)).decode()}\n"


USERS = "basic_auth_users:\n" + user("ann", b"summer") + user("bo", b"\xc3\xbc:ber")


def basic(name: str, password: bytes) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(name.encode() + b':' + password).decode()}"}


@dataclass
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


class Node(Site):
    """A daemon with a small application behind the middleware."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = write_files(folder)
        self.path = folder / "web.yml"
        self.path.write_text(text)
        self.access = WebConfigWatcher(self.path)
        self.asked: Counter[str] = Counter()
        self.now = 0.0
        """Of the rate limit."""
        super().__init__(config=self.access)

    def app(self) -> ASGIApp:
        count = self.counts.refuse_request
        return AuthMiddleware(self._answer, self.access, count, lambda: self.now)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked[scope["path"]] += 1
        headers = [(b"content-type", b"text/plain"), (b"X-Frame-Options", b"sameorigin")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["path"] == "/stream":
            await receive()
            await send({"type": "http.response.body", "body": b"first\n", "more_body": True})
            await receive()
        await send({"type": "http.response.body", "body": b"last\n"})

    def keep(self, context: ssl.SSLContext | None = None) -> Kept:
        return Kept(self.port, context)

    def get(
        self,
        path: str = "/",
        context: ssl.SSLContext | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        with contextlib.closing(self.keep(context)) as kept:
            return kept.get(path, headers)

    def refused(self, reason: str) -> int:
        return self.count.requests_refused_total[reason]


class Kept:
    """A connection that is kept, as Prometheus' are."""

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        if context is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        else:
            self._connection = http.client.HTTPSConnection(
                "localhost", port, timeout=10, context=context
            )
        self._connection.connect()
        self._connection.auto_open = 0

    def get(self, path: str = "/", headers: dict[str, str] | None = None) -> Answer:
        self._connection.request("GET", path, headers=headers or {})
        response = self._connection.getresponse()
        return Answer(response.status, response.getheaders(), response.read())

    def stream(self, headers: dict[str, str]) -> http.client.HTTPResponse:
        self._connection.request("GET", "/stream", headers=headers)
        return self._connection.getresponse()

    def close(self) -> None:
        self._connection.close()


Start = Callable[[str], Node]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def new(text: str) -> Node:
            node = Node(tmp_path, text)
            stack.enter_context(node.open())
            return node

        yield new


def test_the_right_password_is_accepted(start: Start) -> None:
    """And counted out otherwise; the application does not get to know."""
    node = start(USERS)

    assert node.get(headers=basic("ann", b"summer")).body == b"last\n"
    assert node.get(headers=basic("bo", b"\xc3\xbc:ber")).status == 200
    assert node.asked["/"] == 2
    for headers in (
        {},
        basic("ann", b"winter"),
        basic("nobody", b"summer"),
        basic("ann", b"x" * 100),
        basic("ann", b"\0"),
        {"Authorization": "Basic !"},
        {"Authorization": "Bearer summer"},
        {"Authorization": "\xff\xfe"},
    ):
        answer = node.get(headers=headers)
        assert answer.status == 401
        assert answer.values("www-authenticate") == [CHALLENGE[1].decode()]
        assert answer.body == b"a user and password are needed\n"
    assert node.asked["/"] == 2
    assert node.refused("password") == 8


def test_two_passwords_are_no_password(start: Start) -> None:
    """A proxy in between may have looked at the other one."""
    node = start(USERS)
    line = f"Authorization: {basic('ann', b'summer')['Authorization']}\r\n"
    with socket.create_connection(("127.0.0.1", node.port), 5) as client_socket:
        client_socket.sendall(f"GET / HTTP/1.1\r\nHost: node\r\n{line}{line}\r\n".encode())
        assert client_socket.recv(100).startswith(b"HTTP/1.1 401")


def test_every_path_but_one_asks(start: Start) -> None:
    """What starts a daemon anew when it hangs has no password; nothing else is open."""
    node = start(USERS)

    assert node.get("/-/healthy").status == 200
    assert node.get("/-/healthy", headers=basic("ann", b"wrong")).status == 200
    for path in ("/", "/metrics", "/-/ready", "/-/healthy/", "/-/healthy?", "/-//healthy"):
        expected = 200 if path == "/-/healthy?" else 401
        assert node.get(path).status == expected, path


def test_a_new_password_holds_within_a_second(start: Start) -> None:
    """Also on a connection that is kept, which ends with its next answer."""
    node = start(USERS)
    kept = node.keep()
    assert kept.get(headers=basic("ann", b"summer")).status == 200

    node.path.write_text("basic_auth_users:\n" + user("ann", b"winter"))
    wait_until(lambda: node.get(headers=basic("ann", b"winter")).status == 200, 5)
    last = kept.get(headers=basic("ann", b"summer"))

    assert (last.status, last.values("connection")) == (401, ["close"])
    with pytest.raises(http.client.NotConnected):
        kept.get(headers=basic("ann", b"winter"))


def test_a_stream_ends_when_the_configuration_changes(start: Start) -> None:
    """A viewer whose password was removed sees no more; a stream needs no other request."""
    node = start(USERS)
    kept = node.keep()
    stream = kept.stream(basic("ann", b"summer"))
    assert stream.readline() == b"first\n"

    node.path.write_text("basic_auth_users:\n" + user("ann", b"winter"))

    assert stream.read() == b"last\n"
    kept.close()


def test_the_rate_limit_comes_before_the_password(start: Start) -> None:
    """As in the toolkit; liveness probes are not counted."""
    node = start(USERS + "rate_limit: {interval: 10s, burst: 2}\n")

    statuses = [node.get(headers=basic("ann", b"summer")).status for _ in range(2)]
    refused = node.get()

    assert statuses == [200, 200]
    assert (refused.status, refused.values("retry-after")) == (429, ["10"])
    assert refused.body == b"more requests than rate_limit allows\n"
    assert node.get("/-/healthy").status == 200
    assert node.refused("rate") == 1
    node.now += 10.0
    assert node.get().status == 401
    assert node.get().status == 429


def test_another_rate_limit_starts_anew(start: Start) -> None:
    """And its end ends it."""
    node = start("rate_limit: {interval: 1h, burst: 1}\n")
    assert [node.get().status for _ in range(2)] == [200, 429]

    node.path.write_text("rate_limit: {interval: 1h, burst: 2}\n")
    assert [node.get().status for _ in range(3)] == [200, 200, 429]
    node.path.write_text("")
    assert [node.get().status for _ in range(3)] == [200, 200, 200]


def test_configured_headers_replace_the_applications_own(start: Start) -> None:
    """On every answer, and none is there twice."""
    node = start(
        USERS
        + """\
http_server_config:
  headers:
    X-Frame-Options: deny
    X-Content-Type-Options: nosniff
    Strict-Transport-Security: max-age=60
"""
    )

    for answer in (node.get(), node.get(headers=basic("ann", b"summer")), node.get("/-/healthy")):
        assert answer.values("x-frame-options") == ["deny"]
        assert answer.values("x-content-type-options") == ["nosniff"]
        assert answer.values("strict-transport-security") == ["max-age=60"]


def test_a_broken_file_closes_a_plain_port(start: Start) -> None:
    """To all but liveness probes."""
    node = start(PLAIN)
    kept = node.keep()
    assert kept.get().status == 200

    node.path.write_text("basic_auth_users: [")
    refused = node.get()

    assert refused.status == 503
    assert refused.body == b"the web configuration cannot be used, see the log\n"
    assert node.get("/-/healthy").status == 200
    assert not node.access.ok
    wait_until(lambda: kept.get().status == 503, 5)
    assert node.refused("web_config") >= 2
    node.path.write_text(PLAIN)
    wait_until(lambda: node.get().status == 200, 5)
    assert kept.get().status == 200
    kept.close()


def test_a_broken_file_closes_an_encrypted_port_to_new_connections(start: Start) -> None:
    """Connections from before are served on, so that the failure can be scraped."""
    node = start(TLS)
    kept = node.keep(client_context())
    assert kept.get().status == 200

    (node.folder / "node.key").write_text("")
    with pytest.raises(OSError):
        node.get(context=client_context())

    time.sleep(1.1)  # the look of a request on a kept connection
    answer = kept.get()
    assert (answer.status, answer.values("connection")) == (200, [])
    assert not node.access.ok
    assert node.count.connections_refused_total["web_config"] == 1
    write_files(node.folder)
    assert node.get(context=client_context()).status == 200
    assert kept.get().status == 200
    kept.close()


def test_clients_are_known_by_certificate_and_name(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Another authority, another name, no certificate and plain HTTP are refused."""
    node = start(TEXT + "  client_allowed_sans: [scraper.example]\n")

    assert node.get(context=client_context(leaf=client(identity="scraper.example"))).status == 200
    for leaf in (client(), client("other", "scraper.example"), None):
        with pytest.raises(OSError):
            node.get(context=client_context(leaf=leaf))
    for body in (b"", b"x" * 100_000):
        with (
            socket.create_connection(("127.0.0.1", node.port), 5) as plain,
            contextlib.suppress(ConnectionError),
        ):
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n" + body)
            assert b"HTTP" not in plain.recv(1000)
    assert node.asked["/"] == 1
    assert not caplog.records


def test_a_new_authority_holds_from_the_next_connection_on(start: Start) -> None:
    """And a connection accepted under the old one ends with its next answer."""
    node = start(TEXT)
    kept = node.keep(client_context(leaf=client()))
    assert kept.get().status == 200

    (node.folder / "clients.pem").write_bytes(ca_pem("other"))

    assert node.get(context=client_context(leaf=client("other"))).status == 200
    with pytest.raises(OSError):
        node.get(context=client_context(leaf=client()))
    assert kept.get().values("connection") == ["close"]
    with pytest.raises(http.client.NotConnected):
        kept.get()


@given(
    st.floats(1e-9, 1e6),
    st.integers(0, 50),
    st.lists(st.floats(0, 100), max_size=60),
)
def test_no_more_pass_than_were_promised(interval: float, burst: int, gaps: list[float]) -> None:
    """Over any time: the burst, and one for each interval that has passed."""
    bucket, now, passed = Bucket(RateLimit(interval, burst), 0.0), 0.0, 0
    for gap in gaps:
        now += gap
        passed += bucket.take(now)

    assert passed <= burst + now / interval + 1e-6
