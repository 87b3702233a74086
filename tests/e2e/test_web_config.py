# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes over TLS and with a password, while both are exchanged."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import bcrypt
import pytest
from playwright.sync_api import expect

from tests.conftest import require_tool
from tests.e2e.conftest import OpenPage, StartDaemon
from tests.e2e.daemons import Daemon
from tests.e2e.processes import Process
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
    scheme: {scheme}
    {login}
    static_configs:
      - targets: ['localhost:{port}']
"""
CERTIFICATES = "tls_config: {ca_file: node-ca.pem, cert_file: scraper.crt, key_file: scraper.key}"
PASSWORD = "basic_auth: {username: scraper, password_file: password}"
TLS = "tls_server_config:\n  cert_file: node.crt\n  key_file: node.key\n"
CLIENTS = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: clients.pem\n"
SCRAPES_MISSED = 1
"""At most, while both ends get new files: what is written one after the other is not in between."""

Scrape = Callable[[Daemon, str], PrometheusServer]


def users(password: bytes) -> str:
    return f"basic_auth_users:\n  scraper: {bcrypt.hashpw(password, bcrypt.gensalt(6)).decode()}\n"


class Ends:
    """The files of both ends."""

    def __init__(self, folder: Path) -> None:
        self.node, self.prometheus = folder / "node", folder / "prometheus"
        self.node.mkdir(parents=True)
        self.config = self.node / "web.yml"

    def start_daemon(self, start: StartDaemon, text: str) -> Daemon:
        self.config.write_text(text)
        return start({}, "--demo", f"--web.config.file={self.config}")

    def renew_node(self, name: str) -> None:
        write_files(self.node, name)

    def renew_scraper(self, name: str) -> None:
        (self.prometheus / "node-ca.pem").write_bytes(ca_pem(name))
        (self.prometheus / "scraper.crt").write_bytes(cert_pem(client(name)))
        (self.prometheus / "scraper.key").write_bytes(key_pem(client(name)))


@pytest.fixture
def ends(folders: Iterator[Path]) -> Ends:
    return Ends(next(folders))


@pytest.fixture
def scrape(ends: Ends, processes: list[Process]) -> Scrape:
    """Starts a Prometheus that scrapes a daemon: ``scrape(daemon, CERTIFICATES)``."""
    program = require_tool("prometheus")

    def launch(daemon: Daemon, login: str) -> PrometheusServer:
        scheme = daemon.url.partition(":")[0]
        if scheme == "https" and login == PASSWORD:
            login = "tls_config: {ca_file: node-ca.pem}\n    " + login
        text = SCRAPES.format(scheme=scheme, login=login, port=daemon.port)
        server = PrometheusServer(program, ends.prometheus, daemon.port, "1s", text)
        processes.append(server)
        return server

    return launch


def value(server: PrometheusServer, expression: str) -> float | None:
    rows = server.query(expression)
    return float(rows[0]["value"][1]) if rows else None


def is_up(server: PrometheusServer, up: int = 1) -> None:
    wait_until(lambda: value(server, "up") == up, 20, f"up {up}")


def missed(server: PrometheusServer, seconds: int) -> float:
    """Scrapes of the last seconds that failed."""
    window = f"up[{seconds}s]"
    found = value(server, f"count_over_time({window}) - sum_over_time({window})")
    assert found is not None, "no scrape"
    return found


def wait_for_scrapes(server: PrometheusServer, number: int) -> None:
    at = value(server, "timestamp(up)") or 0.0
    wait_until(lambda: (value(server, "timestamp(up)") or 0.0) >= at + number, 30)


def scraped_with_certificates(
    ends: Ends, start: StartDaemon, scrape: Scrape
) -> tuple[Daemon, PrometheusServer]:
    ends.renew_node("first")
    daemon = ends.start_daemon(start, TLS + CLIENTS)
    server = scrape(daemon, CERTIFICATES)
    ends.renew_scraper("first")
    is_up(server)
    return daemon, server


@pytest.mark.slow
def test_certificates_are_exchanged_within_one_scrape(
    ends: Ends, start: StartDaemon, scrape: Scrape
) -> None:
    """The node's, its authority and those of the clients, all at once and without a restart."""
    daemon, server = scraped_with_certificates(ends, start, scrape)
    wait_for_scrapes(server, 4)
    assert missed(server, 4) == 0
    assert value(server, "roofline_exporter_web_config_success") == 1

    ends.renew_scraper("second")
    ends.renew_node("second")
    wait_for_scrapes(server, 6)

    assert value(server, "up") == 1
    assert missed(server, 8) <= SCRAPES_MISSED
    for leaf in (client("first"), None):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            _ask(daemon, client_context("second", leaf))
    assert _ask(daemon, client_context("second", client("second"))) == 200


@pytest.mark.parametrize(
    "tls", [pytest.param("", id="plain", marks=pytest.mark.slow), pytest.param(TLS, id="tls")]
)
def test_passwords_are_exchanged_within_one_scrape(
    ends: Ends, start: StartDaemon, scrape: Scrape, tls: str
) -> None:
    """A new one holds at once, the old one not any more."""
    ends.renew_node("first")
    daemon = ends.start_daemon(start, tls + users(b"summer"))
    server = scrape(daemon, PASSWORD)
    (ends.prometheus / "password").write_bytes(b"summer")
    ends.renew_scraper("first")
    is_up(server)
    wait_for_scrapes(server, 4)
    assert missed(server, 4) == 0

    (ends.prometheus / "password").write_bytes(b"winter")
    ends.config.write_text(tls + users(b"winter"))
    wait_for_scrapes(server, 6)
    assert value(server, "up") == 1
    assert missed(server, 8) <= SCRAPES_MISSED

    ends.config.write_text(tls + users(b"autumn"))
    wait_for_scrapes(server, 3)
    assert value(server, "up") == 0


def test_the_page_is_live_over_tls_with_a_password(
    ends: Ends, start: StartDaemon, view: OpenPage
) -> None:
    """In a real browser: its scripts, its stream and what they ask for."""
    ends.renew_node("first")
    daemon = ends.start_daemon(start, TLS + users(b"summer"))
    daemon.find_in_line("listening on https")
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
