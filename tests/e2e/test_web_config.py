# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes over TLS and with a password, while both are exchanged."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable
from pathlib import Path

import bcrypt
import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import OpenPage, StartDaemon, StartPrometheus
from tests.e2e.daemons import Daemon
from tests.e2e.prometheus import PrometheusServer
from tests.waiting import wait_until
from tests.web.access.authority import (
    ca_pem,
    cert_pem,
    client,
    client_context,
    key_pem,
    write_files,
)

SCRAPES = """\
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: gpu
    scheme: https
    {login}
    static_configs:
      - targets: ['localhost:{port}']
"""
CERTIFICATES = "tls_config: {ca_file: node-ca.pem, cert_file: scraper.crt, key_file: scraper.key}"
PASSWORD = """tls_config: {ca_file: node-ca.pem}
    basic_auth: {username: scraper, password_file: password}"""
TLS = "tls_server_config:\n  cert_file: node.crt\n  key_file: node.key\n"
CLIENTS = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: clients.pem\n"
SCRAPES_MISSED = 1
"""At most, while both ends get new files: what is written one after the other is not in between."""

Scrape = Callable[[Daemon, str], PrometheusServer]


def users(password: bytes) -> str:
    return f"basic_auth_users:\n  scraper: {bcrypt.hashpw(password, bcrypt.gensalt(6)).decode()}\n"


@pytest.fixture(name="serve_tls")
def _serve_tls(start: StartDaemon, tmp_path: Path) -> Callable[[str], Daemon]:
    """Starts a daemon with the first certificate: ``serve_tls(TLS)``."""

    def serve(text: str) -> Daemon:
        write_files(tmp_path, "first")
        (tmp_path / "web.yml").write_text(text)
        return start({}, "--demo", f"--web.config.file={tmp_path / 'web.yml'}")

    return serve


@pytest.fixture
def scrape(start_prometheus: StartPrometheus) -> Scrape:
    """Starts a Prometheus that scrapes a daemon: ``scrape(daemon, CERTIFICATES)``."""

    def launch(daemon: Daemon, login: str) -> PrometheusServer:
        return start_prometheus(config=SCRAPES.format(login=login, port=daemon.port))

    return launch


def renew_scraper(server: PrometheusServer, name: str) -> None:
    (server.directory / "node-ca.pem").write_bytes(ca_pem(name))
    (server.directory / "scraper.crt").write_bytes(cert_pem(client(name)))
    (server.directory / "scraper.key").write_bytes(key_pem(client(name)))


def value(server: PrometheusServer, expression: str) -> float | None:
    rows = server.query(expression)
    return float(rows[0]["value"][1]) if rows else None


def wait_until_up(server: PrometheusServer) -> None:
    wait_until(lambda: value(server, "up") == 1, 20, "up")


def missed(server: PrometheusServer, seconds: int) -> float:
    """Scrapes of the last seconds that failed."""
    window = f"up[{seconds}s]"
    found = value(server, f"count_over_time({window}) - sum_over_time({window})")
    assert found is not None, "no scrape"
    return found


def wait_for_scrapes(server: PrometheusServer, number: int) -> None:
    at = value(server, "timestamp(up)") or 0.0
    wait_until(lambda: (value(server, "timestamp(up)") or 0.0) >= at + number, 30)


@pytest.mark.slow
def test_certificates_are_exchanged_within_one_scrape(
    serve_tls: Callable[[str], Daemon], scrape: Scrape, tmp_path: Path
) -> None:
    """The node's, its authority and those of the clients, all at once and without a restart."""
    daemon = serve_tls(TLS + CLIENTS)
    server = scrape(daemon, CERTIFICATES)
    renew_scraper(server, "first")
    wait_until_up(server)
    wait_for_scrapes(server, 4)
    assert missed(server, 4) == 0
    assert value(server, "roofline_exporter_web_config_success") == 1

    renew_scraper(server, "second")
    write_files(tmp_path, "second")
    wait_for_scrapes(server, 6)

    assert value(server, "up") == 1
    assert missed(server, 8) <= SCRAPES_MISSED
    for leaf in (client("first"), None):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            _ask(daemon, client_context("second", leaf))
    assert _ask(daemon, client_context("second", client("second"))) == 200


def test_passwords_are_exchanged_within_one_scrape(
    serve_tls: Callable[[str], Daemon], scrape: Scrape, tmp_path: Path
) -> None:
    """A new one holds at once, the old one not any more."""
    server = scrape(serve_tls(TLS + users(b"summer")), PASSWORD)
    (server.directory / "password").write_bytes(b"summer")
    renew_scraper(server, "first")
    wait_until_up(server)
    wait_for_scrapes(server, 4)
    assert missed(server, 4) == 0

    (server.directory / "password").write_bytes(b"winter")
    (tmp_path / "web.yml").write_text(TLS + users(b"winter"))
    wait_for_scrapes(server, 6)
    assert value(server, "up") == 1
    assert missed(server, 8) <= SCRAPES_MISSED

    (tmp_path / "web.yml").write_text(TLS + users(b"autumn"))
    wait_for_scrapes(server, 3)
    assert value(server, "up") == 0


def test_the_page_is_live_over_tls_with_a_password(
    serve_tls: Callable[[str], Daemon], view: OpenPage
) -> None:
    """In a real browser: its scripts, its stream and what they ask for."""
    daemon = serve_tls(TLS + users(b"summer"))
    login = {"username": "scraper", "password": "summer"}

    shown = view(http_credentials=login, ignore_https_errors=True).open(daemon.url)

    expect(shown.page.locator("#gpus tbody tr")).to_have_count(8)
    expect(shown.page.locator("svg.roofline .point:not([hidden])").first).to_be_visible()


def _ask(daemon: Daemon, context: ssl.SSLContext) -> int:
    connection = http.client.HTTPSConnection("localhost", daemon.port, timeout=10, context=context)
    try:
        connection.request("GET", "/-/ready")
        return connection.getresponse().status
    finally:
        connection.close()
