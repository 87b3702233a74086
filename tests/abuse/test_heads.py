# SPDX-License-Identifier: Apache-2.0
"""Requests that are too long, too many, too slow, or no HTTP."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.abuse.clients import GET, Exchange, connect, talk
from tests.abuse.target import (
    ANSWER_SECONDS,
    DEADLINE_SECONDS,
    TOLERANCE_SECONDS,
    Record,
    under_attack,
)
from tests.e2e.daemons import Daemon

LINE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
MEBIBYTE = b"a" * 2**20
RESET = struct.pack("ii", 1, 0)


def at_once(count: int, attack: Callable[[int], Exchange]) -> list[Exchange]:
    """Run an attack on so many connections at the same time."""
    done: list[Exchange] = []
    threads = [
        threading.Thread(target=lambda n=number: done.append(attack(n))) for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def test_a_head_of_16_megabytes(daemon: Daemon, record_property: Record) -> None:
    pieces = [LINE + b"X-Long: ", *[MEBIBYTE] * 16, b"\r\n\r\n"]
    with under_attack(daemon, daemon.port, "8 heads of 16 MB", record_property):
        done = at_once(8, lambda _: talk(daemon.port, pieces, 10))
    assert all(each.closed for each in done)
    assert max(each.sent for each in done) < 16 * 2**20, "it was read to its end"
    assert not [each for each in done if 200 in each.statuses]


def test_a_head_that_comes_byte_by_byte(daemon: Daemon, record_property: Record) -> None:
    """Twenty of them: each ends when its time is over, although it moves all the while."""

    def endless() -> Iterator[bytes]:
        yield LINE + b"X: "
        for number in itertools.count(1):
            yield b"x" if number % 8 else b"\r\nX: "

    seconds = DEADLINE_SECONDS + TOLERANCE_SECONDS
    with under_attack(daemon, daemon.port, "20 heads byte by byte", record_property):
        done = at_once(20, lambda _: talk(daemon.port, endless(), seconds, pause=0.2))
    assert [each for each in done if not each.closed] == []
    assert not [each for each in done if 200 in each.statuses]


def test_distinct_values_are_not_kept(daemon: Daemon, record_property: Record) -> None:
    """48 requests of 2 MB, and 300 that are as large as they may be: no cache grows by them."""

    def request(number: int, size: int, query: bytes) -> bytes:
        accept = b"text/plain;v=%d;x=%s" % (number, b"y" * size)
        encoding = b"gzip;q=0.%d;x=%s" % (number + 1, b"y" * size)
        return (
            b"GET /metrics?n=%d%s HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\n"
            b"Accept-Encoding: %s\r\nConnection: close\r\n\r\n" % (number, query, accept, encoding)
        )

    with under_attack(daemon, daemon.port, "distinct Accept, encoding and query", record_property):
        large = [talk(daemon.port, [request(n, 2**20, b"")], 10) for n in range(48)]
        small = [
            talk(daemon.port, [request(n, 10_000, b"y" * 10_000)], 10, most=64) for n in range(300)
        ]
    assert all(each.closed for each in large + small)
    assert not [each for each in large if 200 in each.statuses]


def test_100_000_pipelined_requests(daemon: Daemon, record_property: Record) -> None:
    """Read to the end as far as they are answered: no more are parsed than that."""

    def requests() -> Iterator[bytes]:
        for _ in range(1000):
            yield b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100

    with under_attack(daemon, daemon.port, "100,000 pipelined, read", record_property):
        done = talk(daemon.port, requests(), 4, most=1 << 25)
    assert set(done.statuses) == {200}


def test_an_endless_body(daemon: Daemon, record_property: Record) -> None:
    head = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"z" * 65536 + b"\r\n"
    with under_attack(daemon, daemon.port, "8 endless bodies", record_property):
        done = at_once(
            8, lambda _: talk(daemon.port, itertools.chain([head], itertools.repeat(chunk)), 8)
        )
    assert all(each.closed for each in done)
    assert max(each.sent for each in done) < 2**25


TWICE = b"GET /-/ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
SHAPES = {
    "two lengths": LINE + b"Content-Length: 0\r\nContent-Length: 44\r\n\r\n" + TWICE,
    "two lengths in one": LINE + b"Content-Length: 0, 44\r\n\r\n" + TWICE,
    "a length and chunks": LINE
    + b"Content-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + TWICE,
    "chunks and a length": LINE
    + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"
    + TWICE,
    "chunked with a tab": LINE + b"Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n" + TWICE,
    "chunked misspelt": LINE + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + TWICE,
    "chunked twice": LINE
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"
    + TWICE,
    "a signed length": LINE + b"Content-Length: +0\r\n\r\n" + TWICE,
    "a negative length": LINE + b"Content-Length: -1\r\n\r\n" + TWICE,
    "a hexadecimal length": LINE + b"Content-Length: 0x2c\r\n\r\n" + TWICE,
    "a blank before the colon": LINE + b"Content-Length : 44\r\n\r\n" + TWICE,
    "a folded field": LINE + b"X-A: b\r\n Content-Length: 44\r\n\r\n",
    "a folded first field": b"GET /metrics HTTP/1.1\r\n Host: localhost\r\n\r\n",
    "a NUL in a value": LINE + b"X-A: b\x00c\r\n\r\n",
    "a NUL in a name": LINE + b"X\x00A: b\r\n\r\n",
    "a NUL in the target": b"GET /met\x00rics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a bare CR": LINE + b"X-A: b\rContent-Length: 44\r\n\r\n",
    "an empty name": LINE + b": b\r\n\r\n",
    "two hosts": LINE + b"Host: other.example\r\n\r\n",
    "no host": b"GET /metrics HTTP/1.1\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/9.9": b"GET /metrics HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "no version": b"GET /metrics\r\n\r\n",
    "a method in small letters": b"get /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "CONNECT": b"CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n",
    "a hello of TLS": bytes.fromhex("16030100c8010000c40303") + bytes(range(190)) + b"\r\n\r\n",
    "a body": LINE + b"Content-Length: 5\r\n\r\nhello",
    "chunks of nonsense": LINE + b"Transfer-Encoding: chunked\r\n\r\nnot a number\r\n",
    "an endless chunk extension": LINE + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 100_000,
    "noise": bytes(range(256)) * 8 + b"\r\n\r\n",
}
"""None of these may be answered as a good request, nor may what follows it."""


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_what_is_no_request_is_refused(shared: Daemon, shape: bytes) -> None:
    done = talk(shared.port, [shape], ANSWER_SECONDS)
    assert done.closed, done
    assert len(done.statuses) <= 1, done.statuses
    assert not [status for status in done.statuses if status < 400], done.data[:200]
    assert shared.get("/-/healthy").status == 200


def test_bare_line_feeds_are_one_request_or_none(shared: Daemon) -> None:
    """HTTP allows to take a bare LF for the end of a line; but not to see two requests in one."""
    done = talk(shared.port, [LINE.replace(b"\r", b"") + b"X: y\n\n"], 2)
    assert len(done.statuses) <= 1
    shape = LINE + b"X: y\nContent-Length: 44\r\n\r\n" + TWICE
    done = talk(shared.port, [shape], ANSWER_SECONDS)
    assert done.closed
    assert not [status for status in done.statuses if status < 400]


def test_requests_that_are_cut_off(daemon: Daemon, record_property: Record) -> None:
    """Connections that come and go: closed at every point of a request, and before it."""
    with under_attack(daemon, daemon.port, "500 cut requests", record_property):
        for number in range(500):
            with contextlib.closing(connect(daemon.port)) as connection:
                connection.sendall(GET[: number % len(GET)])
                if number % 2:  # with a reset instead of an end
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
