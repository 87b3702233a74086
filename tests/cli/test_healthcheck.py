# SPDX-License-Identifier: Apache-2.0
"""``healthcheck`` says in one line and by its exit code whether the daemon is well."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.cli import healthcheck
from exporter.cli.config import Address, Settings
from exporter.cli.config.coerce import URL
from exporter.cli.daemon_address import daemon_of
from exporter.cli.http_get import DaemonAddress
from tests.cli.outcomes import Outcome
from tests.cli.stub import NOBODY, Stub, speaking
from tests.programs import ended
from tests.serving import serving

SCRIPT = Path(sys.executable).with_name("roofline-exporter")
LISTENS = "ROOFLINE_WEB_LISTEN_ADDRESS"


@pytest.fixture
def server() -> Iterator[Stub]:
    server = Stub()
    server.body = b"healthy\n"
    with serving(server):
        yield server


@pytest.fixture
def port(server: Stub) -> int:
    return server.server_port


def test_healthcheck_of_a_healthy_daemon(port: int, outcome: Outcome) -> None:
    """The listen address says where to ask; exit 0."""
    code, out, err = outcome("healthcheck", f"--web.listen-address=:{port}")
    assert (code, out, err) == (0, f"http://127.0.0.1:{port}/-/healthy: 200 healthy\n", "")


def test_healthcheck_of_a_daemon_that_is_not_ready(
    server: Stub, port: int, outcome: Outcome
) -> None:
    """The daemon's reason is passed on, on one line; exit 1."""
    server.status, server.body = 503, b"no GPU is up\nX: 1"
    code, out, err = outcome("healthcheck", "--ready", f"--web.listen-address=:{port}")
    assert (code, out) == (1, "")
    assert err == f"http://127.0.0.1:{port}/-/ready: 503 no GPU is up\\nX: 1\n"


def test_healthcheck_of_another_address(
    port: int, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL may have a path, or no scheme; a proxy is never asked."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    url = f"http://127.0.0.1:{port}/gpus/"
    code, out, _ = outcome("healthcheck", "--url", url, "--ready")
    assert (code, out) == (0, f"http://127.0.0.1:{port}/gpus/-/ready: 200 healthy\n")
    assert outcome("healthcheck", "--url", f"127.0.0.1:{port}")[0] == 0


def test_healthcheck_without_a_daemon(outcome: Outcome) -> None:
    """Nobody listens: one line and exit 1."""
    said = f"{NOBODY}/-/healthy: Connection refused\n"
    assert outcome("healthcheck", "--url", NOBODY) == (1, "", said)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 999999 x\r\n\r\n"])
def test_healthcheck_of_something_else(answer: bytes) -> None:
    """A peer that speaks no HTTP is not well, in one line."""
    with speaking(lambda connection: connection.sendall(answer)) as url:
        is_well, line = healthcheck.check(DaemonAddress(URL.parse(url)), ready=False)
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


# The quick check, before the command is loaded


def test_the_quick_check_says_what_the_command_says(
    server: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever on loopback the daemon listens."""
    port = server.server_port
    url = f"http://127.0.0.1:{port}"
    _, line = healthcheck.check(DaemonAddress(URL.parse(url)), ready=False)
    for host in ("", "0.0.0.0", "127.0.0.1"):
        environ = {LISTENS: f"{host}:{port}", "ROOFLINE_URL": "", "ROOFLINE_METRICS_LEVEL": "core"}
        assert healthcheck.quick_check([], environ)
        assert capsys.readouterr().out == f"{line}\n"
    assert healthcheck.quick_check(["--ready"], {LISTENS: f":{port}"})
    assert capsys.readouterr().out == f"{url}/-/ready: 200 healthy\n"


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (["--log.level=info"], {}),
        (["--url=127.0.0.1:{port}"], {}),
        ([], {"ROOFLINE_CONFIG_FILE": "ops.yaml"}),
        ([], {"ROOFLINE_WEB_CONFIG_FILE": "web.yml"}),
        ([], {"ROOFLINE_URL_PASSWROD": "x"}),
        ([], {LISTENS: "localhost:{port}"}),
        ([], {LISTENS: ":0"}),
        ([], {LISTENS: ":99999"}),
        ([], {LISTENS: ":٣"}),
    ],
)
def test_what_is_not_plain_is_left_to_the_command(
    words: list[str], environ: dict[str, str], server: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is asked and nothing is printed."""
    port = server.server_port
    environ = {name: text.format(port=port) for name, text in environ.items()}
    words = [word.format(port=port) for word in words]
    assert not healthcheck.quick_check(words, {LISTENS: f":{port}", **environ})
    assert capsys.readouterr() == ("", "")
    assert server.asked == 0


@pytest.mark.parametrize(
    ("status", "text"), [(503, "no GPU"), (401, ""), (200, "a\nb"), (200, "ü"), (200, "x" * 5000)]
)
def test_an_answer_that_needs_words_is_left_to_the_command(
    status: int, text: str, server: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    """It asks again, and finds the words."""
    server.status, server.body = status, text.encode()
    assert not healthcheck.quick_check([], {LISTENS: ":1"})
    assert not healthcheck.quick_check([], {LISTENS: f":{server.server_port}"})
    assert capsys.readouterr() == ("", "")


def test_the_script_loads_next_to_nothing(server: Stub) -> None:
    """A fifth of what the flag table and an HTTP library would cost, every half minute."""
    environ = {**os.environ, LISTENS: f":{server.server_port}"}
    done = ended(sys.executable, "-X", "importtime", SCRIPT, "healthcheck", env=environ)
    assert (done.returncode, server.asked) == (0, 1)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "exporter.cli.healthcheck" in loaded
    heavy = {"argparse", "dataclasses", "http.client", "socket", "ssl", "yaml", "exporter.cli.main"}
    assert not loaded & heavy


def test_the_script_falls_back_to_the_command(server: Stub) -> None:
    """What is wrong is said as before."""
    server.status, server.body = 503, b"no GPU is up"
    environ = {**os.environ, LISTENS: f":{server.server_port}"}
    done = ended(sys.executable, SCRIPT, "healthcheck", env=environ)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"http://127.0.0.1:{server.server_port}/-/healthy: 503 no GPU is up\n"
    assert server.asked == 2
