# SPDX-License-Identifier: Apache-2.0
"""The well-behaved scraper beside an attack: ``python -m tests.abuse.scraping PORT``.

A process of its own, so that the attacker's work does not count as the daemon's time. It scrapes
until its standard input ends, and then prints what it saw as JSON.
"""

from __future__ import annotations

import http.client
import json
import select
import sys
import time

from tests.benchmarks.scraper import Scraper

INTERVAL_SECONDS = 0.1
HEALTH_EVERY = 5
"""A health check on a new connection follows so many scrapes, as a kubelet would do it."""


def scrape(scraper: Scraper) -> float:
    """Scrape once; a kept connection that was closed meanwhile is replaced, as Prometheus does."""
    connections = scraper.connections
    try:
        answer = scraper.scrape()
    except ConnectionError:
        if connections == 0:
            raise
        scraper.close()
        answer = scraper.scrape()
    if answer.status != 200:
        message = f"/metrics: {answer.status}"
        raise RuntimeError(message)
    return answer.seconds


def check_health(port: int) -> None:
    """Ask for the health."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/-/healthy")
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != 200:
        message = f"/-/healthy: {status}"
        raise RuntimeError(message)


def main(port: int) -> None:
    """Scrape and check until standard input ends."""
    scraper = Scraper(port)
    seconds: list[float] = []
    failures: list[str] = []
    count = 0
    scrape(scraper)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], INTERVAL_SECONDS)[0]:
        count += 1
        started = time.perf_counter()
        try:
            seconds.append(scrape(scraper))
            if count % HEALTH_EVERY == 0:
                check_health(port)
        except (OSError, RuntimeError, http.client.HTTPException, ValueError) as error:
            scraper.close()
            failures.append(f"{error!r} after {time.perf_counter() - started:.2f} s")
    print(json.dumps({"seconds": seconds, "failures": failures}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
