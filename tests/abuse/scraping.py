# SPDX-License-Identifier: Apache-2.0
"""The well-behaved scraper beside an attack: ``python -m tests.abuse.scraping URL``.

A process of its own, so that the attacker's work does not count as the daemon's time, and with an
address of its own, as a Prometheus has. It scrapes until its standard input ends, and then prints
what it saw as JSON.
"""

from __future__ import annotations

import base64
import http.client
import json
import select
import socket
import ssl
import sys
import time
from urllib.parse import SplitResult, urlsplit

NOBODY = "192.0.2.1"
"""An address of documentation: nothing is sent there."""
INTERVAL_SECONDS = 0.1
HEALTH_EVERY = 5
"""A health check on a new connection follows so many scrapes, as a kubelet would do it."""
TIMEOUT_SECONDS = 10.0


class Refused(Exception):
    """An answer was no 200."""


class Client:
    """Keeps its connection, and opens another where that was closed meanwhile, as Prometheus does.

    The URL may hold ``user:password@``; its fragment is the file of a CA.
    """

    def __init__(self, url: str) -> None:
        self._url: SplitResult = urlsplit(url)
        self._headers = {"Accept-Encoding": "gzip", "Accept": "application/openmetrics-text"}
        if self._url.username:
            both = f"{self._url.username}:{self._url.password}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(both).decode()}"
        self._kept: http.client.HTTPConnection | None = None

    def scrape(self) -> float:
        """Scrape once; return the seconds that it took."""
        started = time.perf_counter()
        try:
            self._scrape()
        except (ConnectionError, http.client.BadStatusLine):
            self.close()
            self._scrape()
        return time.perf_counter() - started

    def _scrape(self) -> None:
        if self._kept is None:
            self._kept = self._connection()
        _ask(self._kept, "/metrics", self._headers)

    def check_health(self) -> None:
        """Ask for the health on a connection of its own."""
        connection = self._connection()
        try:
            _ask(connection, "/-/healthy", {})
        finally:
            connection.close()

    def close(self) -> None:
        """Close the kept connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        source = (own_address(), 0)
        if self._url.scheme == "https":
            context = ssl.create_default_context(cafile=self._url.fragment)
            return http.client.HTTPSConnection(
                host, port, timeout=TIMEOUT_SECONDS, source_address=source, context=context
            )
        return http.client.HTTPConnection(
            host, port, timeout=TIMEOUT_SECONDS, source_address=source
        )


def own_address() -> str:
    """Return what the scraper comes from: attackers come from loopback, whose addresses are one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((NOBODY, 9))
        except OSError:  # a machine without a network
            return "127.0.0.2"
        address: str = probe.getsockname()[0]
        return address


def _ask(connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> None:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        message = f"{path}: {answer.status}"
        raise Refused(message)


def main(url: str) -> None:
    """Scrape and check until standard input ends, and once more then."""
    client = Client(url)
    seconds: list[float] = []
    failures: list[str] = []
    count, ended = 0, False
    client.scrape()
    print("ready", flush=True)
    while not ended:
        ended = bool(select.select([sys.stdin], [], [], INTERVAL_SECONDS)[0])
        count += 1
        started = time.perf_counter()
        try:
            seconds.append(client.scrape())
            if count % HEALTH_EVERY == 0:
                client.check_health()
        except (OSError, Refused, http.client.HTTPException) as error:
            client.close()
            failures.append(f"{error!r} after {time.perf_counter() - started:.2f} s")
    print(json.dumps({"seconds": seconds, "failures": failures}))


if __name__ == "__main__":
    main(sys.argv[1])
