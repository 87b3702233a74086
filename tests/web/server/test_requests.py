# SPDX-License-Identifier: Apache-2.0
"""Which requests are answered, which are refused, and how much of them is taken."""

from __future__ import annotations

import io
import re
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from exporter import log
from tests.waiting import wait_until
from tests.web.server.site import GET, LARGE, Site

STATUS = re.compile(rb"HTTP/1\.1 (\d+) ")
END = b"GET /end HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"


@pytest.fixture(name="site")
def _site() -> Iterator[Site]:
    with Site().open() as site:
        yield site


def statuses(answers: bytes) -> list[int]:
    return [int(status) for status in STATUS.findall(answers)]


def head(*fields: str, first: str = "GET / HTTP/1.1") -> bytes:
    return "\r\n".join([first, *fields, "", ""]).encode("latin-1")


HOST = "Host: node"
REFUSED = {
    "malformed": [
        (head(), 400),
        (head(HOST, HOST), 400),
        (head(HOST, first="GET /"), 400),
        (head(HOST, first="GET / HTTP/9.9"), 400),
        (head(HOST, first="BREW / HTTP/1.1"), 400),
        (head(HOST, "No colon"), 400),
        (head(HOST, "Content-Length: 0", "Content-Length: 44"), 400),
        (head(HOST, "Content-Length: 0, 44"), 400),
        (head(HOST, "Transfer-Encoding: chunked", "Content-Length: 4") + b"0\r\n\r\n", 400),
        (head(HOST, "Transfer-Encoding: xchunked") + b"0\r\n\r\n", 400),
        (head(HOST, "Transfer-Encoding: chunked", "Transfer-Encoding: identity"), 400),
        (head(HOST, "Content-Length: +0"), 400),
        (head(HOST, "Content-Length : 44"), 400),
        (head(HOST, "A: b", " Content-Length: 44"), 400),
        (head(" Host: node"), 400),
        (head(HOST, "A: b\0c"), 400),
        (head(HOST, first="GET /a\0b HTTP/1.1"), 400),
        (head(HOST, "A: b\rContent-Length: 44"), 400),
        (head(HOST, ": b"), 400),
        (head(first="PRI * HTTP/2.0"), 400),
        (head(HOST, first="CONNECT node:443 HTTP/1.1"), 400),
        (bytes(range(256)), 400),
    ],
    "head_size": [
        (head(HOST, "A: " + "x" * 33_000), 431),
        (head(HOST, *("A: " + "x" * 900 for _ in range(40))), 431),
        (b"x" * 40_000, 431),
        (head(HOST, first=f"GET /{'x' * 33_000} HTTP/1.1"), 431),
    ],
    "head_count": [(head(HOST, *(f"A{n}: x" for n in range(100))), 431)],
    "body": [
        (head(HOST, "Content-Length: 1", first="POST / HTTP/1.1") + b"x", 413),
        (head(HOST, "Content-Length: 99999999999999", first="POST / HTTP/1.1"), 413),
        (head(HOST, "Transfer-Encoding:\tchunked") + b"0\r\n\r\n", 413),
    ],
}


@pytest.mark.parametrize(
    ("reason", "request_", "status"),
    [(reason, *case) for reason, cases in REFUSED.items() for case in cases],
)
def test_what_is_refused(
    site: Site, reason: str, request_: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Each gets an answer with the reason, ends its connection, and counts, but is no log line."""
    answer = site.ask(request_ + END)

    assert statuses(answer) == [status]
    assert b"\r\nconnection: close\r\n" in answer
    assert b"\r\nx-content-type-options: nosniff\r\n" in answer
    assert len(answer.partition(b"\r\n\r\n")[2].splitlines()) == 1
    counted = site.count.requests_refused_total
    assert {name: count for name, count in counted.items() if count} == {reason: 1}
    assert site.scopes == []
    assert not caplog.records


def test_tls_at_a_plain_port_is_answered_at_once(site: Site) -> None:
    """A handshake has no blank line to wait for."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, False, "node")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()

    answer = site.ask(outgoing.read())

    assert statuses(answer) == [400]
    assert site.count.requests_refused_total["malformed"] == 1
    assert not any(site.count.requests_aborted_total.values())


@pytest.mark.parametrize(
    "request_",
    [
        head(HOST),
        head("host:node"),
        head(HOST, *(f"A{n}: x" for n in range(99))),
        head(HOST, "A: " + "x" * 32_000),
        head(HOST, "Content-Length: 0"),
        head(HOST, "Expect: 100-continue"),
        head(HOST, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
        head(HOST, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AA"),
        b"\r\n\r\n" + head(HOST) + b"\r\n\r\n\n",
        head(HOST, first="GET http://node/path HTTP/1.1"),
    ],
)
def test_what_is_answered(site: Site, request_: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """An upgrade is ignored; the connection stays."""
    answers = site.ask(request_ + request_ + END)

    assert statuses(answers) == [200, 200, 200]
    assert answers.count(b"\r\nx-content-type-options: nosniff\r\n") == 3
    assert answers.endswith(b"GET /end\n")
    assert not any(site.count.requests_refused_total.values())
    assert not caplog.records


def test_http_1_0(site: Site) -> None:
    """It needs no Host, and its connection ends with the answer."""
    answers = site.ask(head(first="GET /old HTTP/1.0") + END)

    assert statuses(answers) == [200]
    assert answers.endswith(b"GET /old\n")


@pytest.mark.parametrize("path", ["/a", "/stream"])
def test_head_has_no_body(site: Site, path: str) -> None:
    """The answer behind it is not mistaken for one, and need not wait for the end of a stream."""
    answers = site.ask(head(HOST, first=f"HEAD {path} HTTP/1.1") + END)

    assert statuses(answers) == [200, 200]
    assert (b"content-length: 8" in answers) is (path == "/a")
    assert b"HEAD /" not in answers
    assert answers.endswith(b"GET /end\n")


@pytest.mark.usefixtures("restored_logging")
def test_errors_of_the_application_do_not_fill_the_log(site: Site) -> None:
    """Each request gets an answer; ten a minute are logged."""
    stream = io.StringIO()
    log.setup("info", "logfmt", stream)
    for _ in range(20):
        assert statuses(site.ask(GET % b"/broken")) == [500]

    lines = stream.getvalue().splitlines()
    assert len(lines) == 10
    assert "RuntimeError: a mistake" in lines[0]


def test_other_methods_are_the_applications(site: Site) -> None:
    """It knows which it allows; they count all the same."""
    assert statuses(site.ask(head(HOST, first="DELETE / HTTP/1.1") + END)) == [200, 200]
    assert site.count.requests_refused_total["malformed"] == 1


def test_ten_in_one_packet_are_answered_in_order(site: Site) -> None:
    """Whatever their answers' size."""
    paths = [b"/%d" % n for n in range(8)]
    with site.connect(GET % b"/large" + b"".join(GET % path for path in paths) + END) as client:
        answers = client.rest()

    assert statuses(answers)[0] == 200
    small = answers[-8 * 200 - 2000 :]
    found = re.findall(rb"GET (/\w+)\n", small)
    assert found == [*paths, b"/end"]


def test_nothing_is_written_into_another_answer(site: Site) -> None:
    """A malformed request waits until the answer before it is done."""
    with site.connect(GET % b"/slow" + b"nonsense\r\n\r\n") as client:
        wait_until(lambda: site.scopes)
        site.released.set()
        answers = client.rest()

    assert statuses(answers) == [200, 400]
    assert answers.index(b"GET /slow\n") < answers.index(b" 400 ")


def test_nothing_is_read_ahead(site: Site) -> None:
    """While an answer is under way the kernel holds what comes, and the client has to wait."""
    with site.connect(GET % b"/slow") as client:
        wait_until(lambda: site.scopes)
        client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.send((GET % b"/ahead") * 1_000_000)
        assert len(site.scopes) == 1


@pytest.mark.parametrize("path", [b"/quick", b"/large"])
def test_a_half_closed_connection_gets_its_answers(site: Site, path: bytes) -> None:
    """As programs do that end their side with the request."""
    with site.connect(GET % path + GET % b"/second") as client:
        client.socket.shutdown(socket.SHUT_WR)
        answers = client.rest()

    assert statuses(answers)[0] == 200
    assert answers.endswith(b"GET /second\n")
    assert len(answers) > (len(LARGE) if path == b"/large" else 0)
    wait_until(lambda: len(site.connections) == 0)


def test_a_half_closed_stream_ends(site: Site) -> None:
    """A browser that leaves looks the same."""
    with site.connect(GET % b"/stream") as client:
        wait_until(lambda: site.scopes)
        client.socket.shutdown(socket.SHUT_WR)
        site.sweep()
        wait_until(lambda: len(site.connections) == 0)


@pytest.mark.parametrize(
    ("rest", "ends"),
    [(b"", False), (b"", True), (b"nonsense\r\n\r\n", False)],
    ids=["asked for", "half closed", "refused"],
)
def test_a_connection_ends_once_behind_a_large_answer(
    site: Site, rest: bytes, ends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Although the client was slow to take it."""
    field = b"" if ends or rest else b"Connection: close\r\n"
    request = (GET % b"/large").replace(b"\r\n\r\n", b"\r\n" + field + b"\r\n")
    with site.connect(request + rest) as client:
        if ends:
            client.socket.shutdown(socket.SHUT_WR)
        time.sleep(0.1)
        answers = client.rest()

    assert LARGE in answers
    wait_until(lambda: len(site.connections) == 0)
    assert not caplog.records


def test_head_of_a_stream_ends_with_its_head(site: Site) -> None:
    """The next request need not wait for the end of the stream."""
    answers = site.ask(head(HOST, first="HEAD /stream HTTP/1.1") + END)

    assert statuses(answers) == [200, 200]
    assert answers.endswith(b"GET /end\n")
