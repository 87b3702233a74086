# SPDX-License-Identifier: Apache-2.0
"""The plain healthcheck says what the command would, or leaves it to the command."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.cli import glance, healthcheck
from exporter.cli.config.coerce import URL
from exporter.cli.http_get import DaemonAddress
from tests.serving import serving

REPOSITORY = Path(__file__).parent.parent.parent
SCRIPT = REPOSITORY / "bin" / "roofline-exporter"


class _Server(http.server.ThreadingHTTPServer):
    status, text, asked = 200, "healthy\n", 0


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.text.encode())

    protocol_version = "HTTP/1.1"

    def end_headers(self) -> None:
        self.send_header("Content-Length", str(len(self.server.text.encode())))
        self.send_header("Connection", "close")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[_Server]:
    server = _Server(("127.0.0.1", 0), _Handler)
    with serving(server):
        yield server


def test_it_says_what_the_command_says(server: _Server, capsys: pytest.CaptureFixture[str]) -> None:
    """By every plain way to say where the daemon is."""
    port = server.server_port
    url = f"http://127.0.0.1:{port}"
    _, line = healthcheck.check(DaemonAddress(URL.parse(url)), ready=False)
    for words, environ in (
        (["--url", url], {}),
        ([f"--url={url}/"], {"ROOFLINE_URL": "http://127.0.0.1:1"}),
        ([f"--url=127.0.0.1:{port}"], {}),
        ([f"--web.listen-address=:{port}"], {"ROOFLINE_METRICS_LEVEL": "core"}),
        (["--web.listen-address", f"0.0.0.0:{port}"], {"ROOFLINE_CONFIG_FILE": ""}),
        ([], {"ROOFLINE_WEB_LISTEN_ADDRESS": f"127.0.0.1:{port}"}),
        ([], {"ROOFLINE_URL": url, "ROOFLINE_WEB_LISTEN_ADDRESS": ":1"}),
        (["--url="], {"ROOFLINE_WEB_LISTEN_ADDRESS": f":{port}"}),
    ):
        assert glance.is_well(words, environ), (words, environ)
        assert capsys.readouterr().out == f"{line}\n"
    assert glance.is_well(["--ready", "--url", url], {})
    assert capsys.readouterr().out == f"{url}/-/ready: 200 healthy\n"


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (["--log.level=info"], {}),
        (["--help"], {}),
        (["ready"], {}),
        (["--url"], {}),
        (["--ready=1"], {}),
        (["--web.listen-address="], {}),
        ([], {"ROOFLINE_CONFIG_FILE": "ops.yaml"}),
        ([], {"ROOFLINE_WEB_CONFIG_FILE": "web.yml"}),
        ([], {"ROOFLINE_URL_USER": "prom"}),
        ([], {"ROOFLINE_URL_PASSWROD": "x"}),
        (["--url=https://127.0.0.1:{port}"], {}),
        (["--url=http://localhost:{port}"], {}),
        (["--url=http://a:b@127.0.0.1:{port}"], {}),
        (["--url=http://127.0.0.1:{port}/gpus"], {}),
        (["--url=http://127.0.0.1"], {}),
        (["--url=127.0.1:{port}"], {}),
        (["--url=127.0.0.1:٣"], {}),
        (["--url=127.0.0.1:99999"], {}),
        (["--web.listen-address=[::1]:{port}"], {}),
        (["--web.listen-address=:0"], {}),
    ],
)
def test_what_is_not_plain_is_left_to_the_command(
    words: list[str], environ: dict[str, str], server: _Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is asked and nothing is printed."""
    environ = {"ROOFLINE_WEB_LISTEN_ADDRESS": f":{server.server_port}", **environ}
    assert not glance.is_well([word.format(port=server.server_port) for word in words], environ)
    assert capsys.readouterr() == ("", "")
    assert server.asked == 0


@pytest.mark.parametrize(
    ("status", "text"), [(503, "no GPU"), (401, ""), (200, "a\nb"), (200, "ü"), (200, "x" * 5000)]
)
def test_an_answer_that_needs_words_is_left_to_the_command(
    status: int, text: str, server: _Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """It asks again, and finds the words."""
    server.status, server.text = status, text
    assert not glance.is_well([f"--url=127.0.0.1:{server.server_port}"], {})
    assert capsys.readouterr() == ("", "")


def test_no_answer_is_left_to_the_command() -> None:
    """Whether nobody listens or somebody is silent."""
    assert not glance.is_well(["--url=127.0.0.1:1"], {})


def test_the_script_loads_next_to_nothing(server: _Server) -> None:
    """A fifth of what the flag table and an HTTP library would cost, every half minute."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", SCRIPT, "healthcheck"],
        env={**os.environ, "ROOFLINE_URL": f"http://127.0.0.1:{server.server_port}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, server.asked) == (0, 1)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "exporter.cli.glance" in loaded
    heavy = {"argparse", "dataclasses", "http.client", "socket", "ssl", "yaml", "exporter.cli.main"}
    assert not loaded & heavy


def test_the_script_falls_back_to_the_command(server: _Server) -> None:
    """What is wrong is said as before."""
    server.status, server.text = 503, "no GPU is up"
    done = subprocess.run(
        [sys.executable, SCRIPT, "healthcheck", f"--url=127.0.0.1:{server.server_port}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"http://127.0.0.1:{server.server_port}/-/healthy: 503 no GPU is up\n"
    assert server.asked == 2
