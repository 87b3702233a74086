# SPDX-License-Identifier: Apache-2.0
"""Real clients over TLS and with a password: a Prometheus while it is exchanged, and a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import bcrypt
import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import OpenPage, StartDaemon, StartPrometheus
from tests.e2e.daemons import Daemon
from tests.e2e.prometheus import PrometheusServer
from tests.waiting import wait_until
from tests.web.access.authority import ca_pem, write_files

CONFIG = """\
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: gpu
    scheme: https
    tls_config: {{ca_file: node-ca.pem}}
    basic_auth: {{username: scraper, password_file: password}}
    static_configs:
      - targets: ['localhost:{port}']
"""
SCRAPES_MISSED = 1
"""At most, while both ends get new files: what is written one after the other is not in between."""

ServeTls = Callable[[], Daemon]


@pytest.fixture(name="serve_tls")
def _serve_tls(start: StartDaemon, tmp_path: Path) -> ServeTls:
    """Starts a daemon with a certificate and the password `summer`."""

    def serve() -> Daemon:
        write_files(tmp_path, "first")
        set_password(tmp_path, b"summer")
        return start({}, "--demo", f"--web.config.file={tmp_path / 'web.yml'}")

    return serve


def set_password(folder: Path, password: bytes) -> None:
    hashed = bcrypt.hashpw(password, bcrypt.gensalt(6)).decode()
    (folder / "web.yml").write_text(
        "tls_server_config:\n  cert_file: node.crt\n  key_file: node.key\n"
        f"basic_auth_users:\n  scraper: {hashed}\n"
    )


def value(server: PrometheusServer, expression: str) -> float | None:
    rows = server.query(expression)
    return float(rows[0]["value"][1]) if rows else None


def missed(server: PrometheusServer, seconds: int) -> float:
    """Scrapes of the last seconds that failed."""
    window = f"up[{seconds}s]"
    found = value(server, f"count_over_time({window}) - sum_over_time({window})")
    assert found is not None, "no scrape"
    return found


def wait_for_scrapes(server: PrometheusServer, number: int) -> None:
    at = value(server, "timestamp(up)") or 0.0
    wait_until(lambda: (value(server, "timestamp(up)") or 0.0) >= at + number, 30)


def test_passwords_are_exchanged_within_one_scrape(
    serve_tls: ServeTls, start_prometheus: StartPrometheus, tmp_path: Path
) -> None:
    """A new one holds at once, the old one not any more."""
    server = start_prometheus(config=CONFIG.format(port=serve_tls().port))
    (server.directory / "password").write_bytes(b"summer")
    (server.directory / "node-ca.pem").write_bytes(ca_pem("first"))
    wait_until(lambda: value(server, "up") == 1, 20, "up")
    wait_for_scrapes(server, 4)
    assert missed(server, 4) == 0
    assert value(server, "roofline_exporter_web_config_success") == 1

    (server.directory / "password").write_bytes(b"winter")
    set_password(tmp_path, b"winter")
    wait_for_scrapes(server, 6)
    assert value(server, "up") == 1
    assert missed(server, 8) <= SCRAPES_MISSED

    set_password(tmp_path, b"autumn")
    wait_for_scrapes(server, 3)
    assert value(server, "up") == 0


def test_the_page_is_live_over_tls_with_a_password(serve_tls: ServeTls, view: OpenPage) -> None:
    """In a real browser: its scripts, its stream and what they ask for."""
    login = {"username": "scraper", "password": "summer"}

    shown = view(http_credentials=login, ignore_https_errors=True).open(serve_tls().url)

    expect(shown.page.locator("#gpus tbody tr")).to_have_count(8)
    expect(shown.page.locator("svg.roofline .point:not([hidden])").first).to_be_visible()
