# SPDX-License-Identifier: Apache-2.0
"""Connections that are too many, that do not move, or that send too much."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import select
import time
from concurrent.futures import ThreadPoolExecutor

from tests.abuse.clients import GET, Crowd, connect, talk
from tests.abuse.conftest import StartDemo
from tests.abuse.target import (
    ANSWER_SECONDS,
    DEADLINE_SECONDS,
    TOLERANCE_SECONDS,
    Record,
    sockets,
    under_attack,
)
from tests.e2e.daemons import REQUEST as STREAM
from tests.e2e.daemons import Daemon
from tests.e2e.processes import Process, retry_once
from tests.waiting import wait_until

PATIENCE_SECONDS = DEADLINE_SECONDS + TOLERANCE_SECONDS
MOST_OF_ONE = 100
"""Connections of one address."""
SLACK_SOCKETS = 12
"""Of the scraper beside the attack, and of what it has just closed."""


def wait_until_ended(
    daemon: Process, before: int, seconds: float, what: str, slack: int = SLACK_SOCKETS
) -> None:
    """Wait until a daemon has no more sockets than before, give or take the scraper's."""
    wait_until(lambda: sockets(daemon.pid) <= before + slack, seconds, what)


def test_600_silent_sockets(daemon: Daemon, record_property: Record) -> None:
    """They leave room for other addresses, and are ended when their time is over."""
    with (
        under_attack(daemon, "600 silent sockets", record_property) as seen,
        Crowd(daemon.port, 600),
    ):
        wait_until_ended(daemon, seen.sockets_before, PATIENCE_SECONDS, "all silent ones ended")


def test_out_of_descriptors(daemon: Daemon, record_property: Record) -> None:
    """It counts, logs nothing, and answers as soon as there are descriptors again."""
    before = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    with under_attack(daemon, "out of descriptors", record_property, answering=False) as seen:
        used = max(map(int, os.listdir(f"/proc/{daemon.pid}/fd"))) + 1
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (used + 4, before[1]))
        with Crowd(daemon.port, 200):
            time.sleep(3)
            assert not _healthy(daemon)
            resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)
        wait_until(lambda: _answered_refused(daemon, "descriptors"))
    assert seen.lines == 0


def _answered_refused(daemon: Daemon, reason: str) -> float | None:
    """None while the crowd's connections leave no room for this one."""
    with contextlib.suppress(OSError):
        return _refused(daemon, reason)
    return None


def _refused(daemon: Daemon, reason: str) -> float:
    family = "roofline_exporter_connections_refused_total"
    return daemon.metrics().value(family, reason=reason)


def _healthy(daemon: Daemon) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return daemon.request("/-/healthy", timeout=ANSWER_SECONDS).status == 200
    return False


@retry_once
def test_60_scrapes_that_are_not_read(daemon: Daemon, record_property: Record) -> None:
    """Others are answered meanwhile, and they end after ten seconds without progress."""
    with (
        under_attack(daemon, "60 scrapes that are not read", record_property) as seen,
        Crowd(daemon.port, 60, GET, small=True),
    ):
        time.sleep(2)
        assert sockets(daemon.pid) > seen.sockets_before + 20, "they are gone before their time"
        wait_until_ended(daemon, seen.sockets_before, PATIENCE_SECONDS, "all that are stuck ended")


def test_40_streams_that_are_not_read(daemon: Daemon, record_property: Record) -> None:
    """As many as are served stay below the memory limit; a viewer after them is served."""
    with (
        under_attack(daemon, "40 streams that are not read", record_property),
        Crowd(daemon.port, 40, STREAM, small=True),
    ):
        time.sleep(PATIENCE_SECONDS)
    assert daemon.lines("Traceback") == []

    def served() -> bool:
        return talk(daemon.port, [STREAM], 0.5).statuses == [200]

    wait_until(served, ANSWER_SECONDS, "a stream")


def test_requests_that_are_never_read(daemon: Daemon, record_property: Record) -> None:
    """100,000 in one connection whose answers are not read."""
    with (
        under_attack(daemon, "100,000 pipelined, not read", record_property) as seen,
        contextlib.closing(connect(daemon.port, small=True)) as connection,
    ):
        connection.setblocking(False)
        deadline = time.monotonic() + 2
        view = memoryview(GET * 100_000)
        while view and time.monotonic() < deadline:
            if select.select([], [connection], [], 0.1)[1]:
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    view = view[connection.send(view) :]
        wait_until_ended(daemon, seen.sockets_before, PATIENCE_SECONDS, "it is ended", slack=1)


def test_a_thousand_connections_at_once(daemon: Daemon, record_property: Record) -> None:
    """An address has its own limit, which leaves room for others."""
    with (
        under_attack(daemon, "1,000 at once", record_property) as seen,
        Crowd(daemon.port, 1000) as crowd,
    ):
        wait_until(lambda: crowd.ended >= 100)
        # Up to a backlog of connections is accepted at once, and refused after that.
        most = seen.sockets_before + MOST_OF_ONE + SLACK_SOCKETS
        wait_until(lambda: sockets(daemon.pid) <= most)
    wait_until(lambda: (_answered_refused(daemon, "address_limit") or 0) >= 100)


def test_heads_of_16_megabytes(daemon: Daemon, record_property: Record) -> None:
    """Eight at once: none is read to its end."""
    pieces = [GET.rstrip() + b"\r\nX-Long: ", *[b"a" * 2**20] * 16, b"\r\n\r\n"]
    with (
        under_attack(daemon, "8 heads of 16 MB", record_property),
        ThreadPoolExecutor(8) as pool,
    ):
        done = list(pool.map(lambda _: talk(daemon.port, pieces, 10), range(8)))
    assert all(each.closed for each in done)
    assert max(each.sent for each in done) < 16 * 2**20
    assert not [each for each in done if 200 in each.statuses]


def test_another_host_is_refused(start_demo: StartDemo) -> None:
    """A page that made its name this node's address reads nothing."""
    daemon = start_demo("--web.allowed-hosts=.corp.example")
    for path in ("/metrics", "/", "/api/v1/gpus", "/api/v1/stream", "/none"):
        answer = daemon.get(path, {"Host": "evil.example"})
        assert answer.status == 421, path
        assert "--web.allowed-hosts" in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert daemon.get("/-/healthy", {"Host": "evil.example"}).status == 200
    assert daemon.get("/metrics", {"Host": "gpu1.corp.example:19400"}).status == 200
    refused = "roofline_exporter_requests_refused_total"
    wait_until(lambda: daemon.metrics().value(refused, reason="host") == 5, 5)


def test_it_stops_in_time_with_500_stuck_connections(
    start_demo: StartDemo, record_property: Record
) -> None:
    """With exit code 0, and no line for each of them."""
    daemon = start_demo("--web.max-connections-per-address=510")
    with contextlib.ExitStack() as stack:
        for first in (b"", GET[:22], GET * 30, STREAM, GET.replace(b"metrics", b"") * 30):
            stack.enter_context(Crowd(daemon.port, 100, first, small=True))
        time.sleep(1)
        began = time.monotonic()
        assert daemon.get("/metrics").status == 200
        scrape = time.monotonic() - began
        lines = len(daemon.lines())
        code, seconds = daemon.stop()
    said = f"500 stuck: scrape {scrape * 1e3:.0f} ms, stop {seconds:.1f} s"
    record_property("measured", said)
    assert code == 0
    assert seconds < 5
    assert len(daemon.lines()) <= lines + 2, daemon.lines()[lines:]
