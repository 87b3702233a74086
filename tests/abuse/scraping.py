# SPDX-License-Identifier: Apache-2.0
"""The well-behaved scraper beside an attack: ``python -m tests.abuse.scraping URL``.

A process of its own, so that the attacker's work does not count as the daemon's time, and with an
address of its own, as a Prometheus has. It scrapes until its standard input ends, and then prints
what it saw as JSON.
"""

from __future__ import annotations

import base64
import contextlib
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


def connection(url: SplitResult) -> http.client.HTTPConnection:
    """Return a connection that is opened with its first request."""
    host, address = url.hostname or "", (own_address(), 0)
    if url.scheme == "http":
        return http.client.HTTPConnection(
            host, url.port, timeout=TIMEOUT_SECONDS, source_address=address
        )
    context = ssl.create_default_context(cafile=url.fragment)
    return http.client.HTTPSConnection(
        host, url.port, timeout=TIMEOUT_SECONDS, source_address=address, context=context
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


def ask(connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> None:
    """Read an answer, which has to be a 200."""
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        message = f"{path}: {answer.status}"
        raise Refused(message)


def main(text: str) -> None:
    """Scrape and check until standard input ends, and once more then.

    The URL may hold ``user:password@``; its fragment is the file of a CA.
    """
    url = urlsplit(text)
    headers = {"Accept-Encoding": "gzip", "Accept": "application/openmetrics-text"}
    if url.username:
        both = f"{url.username}:{url.password}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(both).decode()}"
    kept = connection(url)

    def scrape() -> float:
        started = time.perf_counter()
        try:
            ask(kept, "/metrics", headers)
        except (ConnectionError, http.client.BadStatusLine):
            kept.close()  # it opens another one, as Prometheus does
            ask(kept, "/metrics", headers)
        return time.perf_counter() - started

    seconds: list[float] = []
    failures: list[str] = []
    count, ended = 0, False
    scrape()
    print("ready", flush=True)
    while not ended:
        ended = bool(select.select([sys.stdin], [], [], INTERVAL_SECONDS)[0])
        count += 1
        started = time.perf_counter()
        try:
            seconds.append(scrape())
            if count % HEALTH_EVERY == 0:
                with contextlib.closing(connection(url)) as probe:
                    ask(probe, "/-/healthy", {})
        except (OSError, Refused, http.client.HTTPException) as error:
            kept.close()
            failures.append(f"{error!r} after {time.perf_counter() - started:.2f} s")
    print(json.dumps({"seconds": seconds, "failures": failures}))


if __name__ == "__main__":
    main(sys.argv[1])
