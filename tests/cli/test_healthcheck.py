# SPDX-License-Identifier: Apache-2.0
"""``healthcheck`` says in one line and by its exit code whether the daemon is well."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator

import pytest

from exporter.cli import healthcheck
from exporter.cli.config import Address, Settings
from exporter.cli.config.coerce import URL
from exporter.cli.daemon_address import daemon_of
from exporter.cli.http_get import DaemonAddress
from tests.cli.outcomes import outcome
from tests.serving import serving


class _Daemon(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, text = {
            "/-/healthy": (200, "healthy"),
            "/-/ready": (503, "no GPU is up\nX: 1"),
            "/gpus/-/ready": (200, ""),
        }[self.path]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Daemon)) as port:
        yield port


def test_healthcheck_of_a_healthy_daemon(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The listen address says where to ask; exit 0."""
    code, out, err = outcome(capsys, "healthcheck", f"--web.listen-address=:{port}")
    assert (code, out, err) == (0, f"http://127.0.0.1:{port}/-/healthy: 200 healthy\n", "")


def test_healthcheck_of_a_daemon_that_is_not_ready(
    port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The daemon's reason is passed on, on one line; exit 1."""
    code, out, err = outcome(capsys, "healthcheck", "--ready", f"--web.listen-address=:{port}")
    assert (code, out) == (1, "")
    assert err == f"http://127.0.0.1:{port}/-/ready: 503 no GPU is up\\nX: 1\n"


def test_healthcheck_of_another_address(
    port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL may have a path, or no scheme; a proxy is never asked."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    url = f"http://127.0.0.1:{port}/gpus/"
    code, out, _ = outcome(capsys, "healthcheck", "--url", url, "--ready")
    assert (code, out) == (0, f"http://127.0.0.1:{port}/gpus/-/ready: 200\n")
    assert outcome(capsys, "healthcheck", "--url", f"127.0.0.1:{port}")[0] == 0


def test_healthcheck_without_a_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody listens: one line and exit 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        code, out, err = outcome(capsys, "healthcheck", f"--url=127.0.0.1:{taken.getsockname()[1]}")
    assert (code, out) == (1, "")
    assert err.endswith("/-/healthy: Connection refused\n")


def test_healthcheck_does_not_wait_for_ever() -> None:
    """A daemon that takes the connection and says nothing is not well."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        is_well, line = healthcheck.check(
            DaemonAddress(URL.parse(url)), ready=False, timeout_seconds=0.05
        )
    assert not is_well
    assert line == f"{url}/-/healthy: timed out"


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 999999 x\r\n\r\n"])
def test_healthcheck_of_something_else(answer: bytes) -> None:
    """A peer that speaks no HTTP is not well, in one line."""
    with socket.create_server(("127.0.0.1", 0)) as other:

        def speak() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=speak)
        thread.start()
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        is_well, line = healthcheck.check(DaemonAddress(URL.parse(url)), ready=False)
        thread.join()
    assert not is_well
    assert line.startswith(f"{url}/-/healthy: ")
    assert line.isprintable()


@pytest.mark.parametrize(
    ("address", "url"),
    [
        (Address("", 19400), "http://127.0.0.1:19400"),
        (Address("0.0.0.0", 1), "http://127.0.0.1:1"),
        (Address("::", 1), "http://[::1]:1"),
        (Address("10.1.2.3", 1), "http://10.1.2.3:1"),
        (Address("fd00::5", 1), "http://[fd00::5]:1"),
        (Address("node7", 1), "http://node7:1"),
    ],
)
def test_where_the_local_daemon_is_asked(address: Address, url: str) -> None:
    """A daemon that listens on every address is asked on loopback."""
    assert str(daemon_of(Settings(web_listen_address=address), "healthcheck").url) == url
