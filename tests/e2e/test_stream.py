# SPDX-License-Identifier: Apache-2.0
"""The live stream of the running daemon: its rate, its end, and clients that misbehave."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from typing import Any

from tests.e2e.conftest import StartDaemon
from tests.e2e.daemons import Daemon
from tests.e2e.processes import retry_once
from tests.e2e.streams import StreamClient
from tests.web.live.merge_patch import merged

WATCH_SECONDS = 6.0
MOST_BYTES_PER_SECOND = 4000
STOP_SECONDS = 1.5
"""The promise is 1 s; the rest is the start of `kill` and the end of the interpreter."""
GPUS = 8


def connect(clients: contextlib.ExitStack, daemon: Daemon, **options: Any) -> StreamClient:
    client = StreamClient(daemon.port, **options)
    clients.callback(client.close)
    return client


def demo(start: StartDaemon, *flags: str) -> Daemon:
    return start({}, "--demo", "--no-source.training", *flags, wait_for=GPUS)


@retry_once
def test_events_over_http(start: StartDaemon) -> None:
    """One event a second, below 4 kB a second, that lead from view to view."""
    daemon = demo(start)
    with contextlib.ExitStack() as clients:
        client = connect(clients, daemon)
        client.read_until(b"event: diff")
        came = client.read_for(WATCH_SECONDS)
    found = re.findall(rb"id: (\d+)\nevent: (\w+)\ndata: (.*)\n", client.data)
    names = [name for _, name, _ in found]
    assert names[0] == b"snapshot"
    assert set(names[1:]) == {b"diff"}
    view = json.loads(found[0][2])
    for number, _, data in found[1:]:
        view = merged(view, json.loads(data))
        assert view["sequence"] == int(number)
    assert len(view["rows"]) == GPUS
    assert view["notice"] == "Not real GPUs. This data is simulated."
    assert WATCH_SECONDS - 2 <= came.count(b"event: diff") <= WATCH_SECONDS + 1
    rate = len(came) / WATCH_SECONDS
    print(f"{rate:.0f} bytes/s on the wire")
    assert rate < MOST_BYTES_PER_SECOND


@retry_once
def test_streams_end_when_the_daemon_stops(start: StartDaemon) -> None:
    """Open streams end properly and do not hold up the end of the daemon."""
    daemon = demo(start)
    with contextlib.ExitStack() as clients:
        viewers = [connect(clients, daemon) for _ in range(10)]
        for viewer in viewers:
            viewer.read_until(b"event: snapshot")
        code, seconds = daemon.stop()
        assert code == 0, daemon.lines()
        assert seconds < STOP_SECONDS
        for viewer in viewers:
            viewer.read_to_end()
            assert viewer.data.endswith(b"0\r\n\r\n")
    assert not daemon.lines("Traceback")
    assert not daemon.lines("level=error")


@retry_once
def test_a_client_that_reads_nothing_harms_nobody(start: StartDaemon) -> None:
    """While one takes nothing, another gets every event and scrapes are answered."""
    daemon = demo(start, "--poll.interval=100ms")
    with contextlib.ExitStack() as clients:
        deaf = [connect(clients, daemon, receive_buffer=1024) for _ in range(5)]
        viewer = connect(clients, daemon)
        viewer.read_until(b"event: snapshot")
        came = viewer.read_for(4.0)
        assert 2 <= came.count(b"event: diff") <= 5
        assert daemon.get("/-/healthy").status == 200
        assert daemon.metrics().value("gpu_up", gpu="0") == 1
        assert len(deaf) == 5


@retry_once
def test_too_many_streams(start: StartDaemon) -> None:
    """The 33rd is refused in one line; the page, scrapes and the API are not."""
    daemon = demo(start)
    with contextlib.ExitStack() as clients:
        viewers = [connect(clients, daemon) for _ in range(32)]
        for viewer in viewers:
            viewer.read_until(b"event: snapshot")
        answer = daemon.get("/api/v1/stream")
        assert answer.status == 503
        assert answer.text == "32 streams are open, which is the limit\n"
        for path in ("/", "/metrics", "/-/ready", "/api/v1/gpus/0/history"):
            assert daemon.get(path).status == 200, path


@retry_once
def test_history_of_a_running_daemon(start: StartDaemon) -> None:
    """Readings that come ten times a second are points a second apart."""
    daemon = demo(start, "--poll.interval=100ms")
    with contextlib.ExitStack() as clients:
        connect(clients, daemon).read_for(4.0)
    answer = json.loads(daemon.get("/api/v1/gpus/0/history").text)
    times = answer["timestamps"]
    assert len(times) >= 4
    # The last one may still be under way.
    gaps = [later - earlier for earlier, later in itertools.pairwise(times[:-1])]
    assert all(gap > 0.5 for gap in gaps), gaps
    assert 0.8 < sum(gaps) / len(gaps) < 1.5, gaps
    assert all(len(points) == len(times) for points in answer["columns"].values())
