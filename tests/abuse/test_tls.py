# SPDX-License-Identifier: Apache-2.0
"""TLS that is never agreed on, and passwords that are never right."""

from __future__ import annotations

import base64
import contextlib
import http.client
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.abuse.clients import Crowd
from tests.abuse.scraping import own_address
from tests.abuse.target import (
    DEADLINE_SECONDS,
    TOLERANCE_SECONDS,
    Record,
    sockets,
    under_attack,
)
from tests.conftest import require_tool, unmet
from tests.e2e.daemons import Daemon
from tests.e2e.processes import Process
from tests.waiting import wait_until
from tests.web.access.authority import write_files

HELLO = bytes.fromhex("16030100c8010000c40303")
"""The begin of a TLS hello that announces 200 bytes."""
TLS = "tls_server_config: {cert_file: node.crt, key_file: node.key}\n"
USER, PASSWORD = "prometheus", "correct-horse"
FLOOD_SECONDS = 4.0


def users(password: str) -> str:
    import bcrypt

    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(10)).decode()
    return f"{TLS}basic_auth_users: {{{USER}: '{hashed}'}}\n"


def url(daemon: Daemon, folder: Path, password: str = PASSWORD) -> str:
    """Return what a scraper asks (see `scraping`)."""
    return f"https://{USER}:{password}@127.0.0.1:{daemon.port}#{folder / 'clients.pem'}"


@pytest.fixture(name="secured")
def _secured(folders: Iterator[Path], processes: list[Process], tmp_path: Path) -> Daemon:
    """A daemon with a certificate and one user."""
    file = write_files(tmp_path) / "web.yml"
    file.write_text(users(PASSWORD))
    daemon = Daemon(next(folders), {}, ("--demo", f"--web.config.file={file}"))
    processes.append(daemon)
    return daemon


def test_handshakes_that_never_finish(
    secured: Daemon, tmp_path: Path, record_property: Record
) -> None:
    """Half of them say nothing at all, the other half the begin of a hello."""
    name = "200 handshakes that never finish"
    with (
        under_attack(secured, name, record_property, url=url(secured, tmp_path)) as seen,
        Crowd(secured.port, 100),
        Crowd(secured.port, 100, HELLO),
    ):
        wait_until(
            lambda: sockets(secured.pid) <= seen.sockets_before + 4,
            DEADLINE_SECONDS + TOLERANCE_SECONDS,
            "all ended",
        )


@contextlib.contextmanager
def wrong_passwords(port: int, ca: Path, addresses: Sequence[str]) -> Iterator[list[int]]:
    """Have a client at each address guess, until the end; give what they are answered."""
    context = ssl.create_default_context(cafile=str(ca))
    answers: list[int] = []
    over = threading.Event()

    def guess(address: str, thread: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            both = base64.b64encode(f"{USER}{number % 2}:{thread} {number}".encode()).decode()
            connection = http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=10, context=context, source_address=(address, 0)
            )
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("GET", "/metrics", headers={"Authorization": f"Basic {both}"})
                answers.append(connection.getresponse().status)
            connection.close()

    threads = [
        threading.Thread(target=guess, args=(address, number))
        for number, address in enumerate(addresses)
    ]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_flood_of_wrong_passwords(
    secured: Daemon, tmp_path: Path, record_property: Record
) -> None:
    """Each costs a check of bcrypt; the right one is answered all the while."""
    name = "wrong passwords, 16 clients"
    with (
        under_attack(secured, name, record_property, url=url(secured, tmp_path)),
        wrong_passwords(secured.port, tmp_path / "clients.pem", ["127.0.0.1"] * 16) as answers,
    ):
        time.sleep(FLOOD_SECONDS)
    assert len(answers) > 20
    assert set(answers) <= {401, 429, 503}


def test_a_new_password_in_a_flood_of_wrong_ones(
    secured: Daemon, tmp_path: Path, record_property: Record
) -> None:
    """It is not cached, yet answered at once: the flood has one turn in two."""
    if own_address().startswith("127."):
        unmet("this machine has no address but those of loopback")
    new = "battery-staple"
    addresses = [f"127.0.{number}.1" for number in range(4)] * 5
    with wrong_passwords(secured.port, tmp_path / "clients.pem", addresses) as answers:
        wait_until(lambda: 503 in answers)
        (tmp_path / "web.yml").write_text(users(new))
        name, where = "a new password, 20 clients", url(secured, tmp_path, new)
        with under_attack(secured, name, record_property, url=where):
            time.sleep(FLOOD_SECONDS)


def test_renegotiation(secured: Daemon, tmp_path: Path, record_property: Record) -> None:
    """A client that wants to begin anew again and again, over TLS 1.2."""
    openssl = require_tool("openssl")
    command = [openssl, "s_client", "-connect", f"127.0.0.1:{secured.port}", "-tls1_2"]
    with under_attack(secured, "renegotiation", record_property, url=url(secured, tmp_path)):
        client = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert client.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            for _ in range(20):
                client.stdin.write(b"R\n")
                client.stdin.flush()
                time.sleep(0.05)
        client.kill()
        client.communicate()
