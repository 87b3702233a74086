# SPDX-License-Identifier: Apache-2.0
"""One GET, of servers that answer well and badly."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.sources.dcgm.scrape import (
    BROKEN,
    MOST_BYTES,
    NothingThere,
    ScrapeFailed,
    Target,
    fetch,
)
from tests.sources.dcgm.server import TEXT, Server, answered, serving

PAGE = "DCGM_FI_PROF_SM_ACTIVE 0.5\n"
NO_TEXT = "its answer is not plain text"
SHORT_SECONDS = 0.2
"""A total limit that a test need not wait long for."""


@pytest.fixture(name="server")
def _server() -> Iterator[Server]:
    with serving() as server:
        yield server


def refusal(target: str | Target, total_seconds: float = 5.0) -> str:
    with pytest.raises(ScrapeFailed) as failed:
        fetch(Target(target) if isinstance(target, str) else target, total_seconds)
    assert "\n" not in str(failed.value)
    return str(failed.value)


def test_a_page_is_text(server: Server) -> None:
    """The request asks for plain text, and closes the connection."""
    server.answer = answered(PAGE.encode())

    assert fetch(Target(server.url)) == PAGE
    assert server.seen[0]["path"] == "/metrics"
    assert server.seen[0]["Accept"] == "text/plain"
    assert server.seen[0]["Connection"] == "close"
    assert "Authorization" not in server.seen[0]


def test_user_and_password_go_along(server: Server) -> None:
    """They are sent as basic authentication, and are not in the repr that a log may have."""
    server.answer = answered(PAGE.encode())
    target = Target(server.url, "prometheus", "pässword")

    assert fetch(target) == PAGE
    expected = base64.b64encode("prometheus:pässword".encode()).decode()
    assert server.seen[0]["Authorization"] == f"Basic {expected}"
    assert "pässword" not in repr(target)


def test_a_page_of_ten_megabytes_is_refused(server: Server) -> None:
    """One that is just within the limit is not."""
    server.answer = answered(b"#" * 10_000_000)
    assert refusal(server.url) == "its page has more than 4 MB"
    server.answer = answered(b"#" * (MOST_BYTES - 1000))
    assert len(fetch(Target(server.url), 30.0)) == MOST_BYTES - 1000


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (answered(b"<html>", {"Content-Type": "text/html"}), NO_TEXT),
        (
            answered(b"", {**TEXT, "Content-Encoding": "gzip"}),
            "its answer is compressed in a way that was not asked for",
        ),
        (answered(b"", status="404 No"), "it answers 404"),
        (answered(b"", {"Location": "http://127.0.0.1:1/"}, "302 Found"), "it answers 302"),
        (b"", BROKEN),
        (b"\x00\xff\r\n" * 50, BROKEN),
        (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000, BROKEN),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 50\r\n\r\nDCGM", BROKEN),
    ],
)
def test_anything_else_is_refused_in_one_line(server: Server, answer: bytes, reason: str) -> None:
    """The reason has no text of the answer."""
    server.answer = answer

    assert refusal(server.url) == reason


def test_a_page_without_a_type_is_taken(server: Server) -> None:
    """It is text unless it says otherwise."""
    server.answer = answered(PAGE.encode(), {})

    assert fetch(Target(server.url)) == PAGE


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"])
def test_the_limit_is_for_all_of_an_answer(server: Server, first: bytes) -> None:
    """A server that sends one byte at a time is cut off, too."""
    ended = threading.Event()

    def drip() -> Iterator[bytes]:
        yield first
        while not ended.wait(SHORT_SECONDS / 10):
            yield b"#"

    server.answer = drip
    began = time.monotonic()
    reason = refusal(server.url, SHORT_SECONDS)
    ended.set()

    assert reason == "no whole answer within 0.2 s"
    assert time.monotonic() - began >= SHORT_SECONDS


def test_where_nothing_listens() -> None:
    """A refused connection or an unknown name is NothingThere, not a bad answer."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(NothingThere, match="connection refused"):
        fetch(Target(f"http://127.0.0.1:{port}/metrics"))
    with pytest.raises(NothingThere):
        fetch(Target("http://name.invalid:9400/metrics"), 5.0)


LISTENER = """
import os, socket
os.setuid(%d)
server = socket.socket(socket.%s)
server.bind((%r, 0))
server.listen()
print(server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    connection.recv(4096)
    connection.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nDCGM_FI_PROF_SM_ACTIVE 0.5")
    connection.close()
"""
OTHER_UID = 4242


@contextmanager
def listening_as(uid: int, family: str, host: str) -> Iterator[Target]:
    """The page of a process of this user, at an address that nobody has configured."""
    command = [sys.executable, "-c", LISTENER % (uid, family, host)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield Target(f"http://127.0.0.1:{port}/metrics", procfs=Path("/proc"))
        finally:
            process.kill()


ADDRESSES = [("AF_INET", "127.0.0.1"), ("AF_INET", "0.0.0.0"), ("AF_INET6", "::")]


@pytest.mark.parametrize(("family", "host"), ADDRESSES)
def test_the_page_of_this_user_is_believed(family: str, host: str) -> None:
    """At the default address a process of the exporter's own user is trusted."""
    with listening_as(os.getuid(), family, host) as target:
        assert fetch(target, 5.0) == "DCGM_FI_PROF_SM_ACTIVE 0.5"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize(("family", "host"), ADDRESSES)
def test_the_page_of_another_user_is_believed_if_it_is_configured(family: str, host: str) -> None:
    """At the default address it is refused, and the reason names the flag that allows it."""
    with listening_as(OTHER_UID, family, host) as target:
        assert refusal(target) == (
            "user 4242, neither root nor this one, answers there: it is asked with "
            f"--dcgm.url={target.url} only"
        )
        assert fetch(Target(target.url), 5.0) == "DCGM_FI_PROF_SM_ACTIVE 0.5"


def test_a_connection_that_nobody_accepts_is_nobodys() -> None:
    """Until a process accepts it its owner is not known, so its page is refused."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        for procfs in ("/proc", "/nonexistent"):
            reason = refusal(Target(url, procfs=Path(procfs)), SHORT_SECONDS)
            assert reason.startswith("nobody of this network namespace answers there: ")
            assert reason.endswith(f" --dcgm.url={url} only")


def test_a_user_without_a_name_is_not_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: Server
) -> None:
    """The overflow uid stands for every user outside the namespace: it is not trusted."""
    server.answer = answered(PAGE.encode())
    seen = []

    def accepted(connection: socket.socket, procfs: Path) -> int:
        seen.append(procfs)
        return 65534

    monkeypatch.setattr("exporter.sources.dcgm.scrape.accepted_by", accepted)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert "neither root nor this one" in refusal(Target(server.url, procfs=tmp_path))
    assert seen == [tmp_path]


def test_a_server_without_tls_is_no_https(server: Server) -> None:
    """The reason says that it is TLS which failed."""
    assert refusal(server.url.replace("http:", "https:")).startswith("TLS: ")
