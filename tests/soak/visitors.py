# SPDX-License-Identifier: Apache-2.0
"""Who comes to a node in a soak: scrapers, people with the page open, and training jobs."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tests.e2e.daemons import StreamClient
from tests.e2e.processes import environment

SCRAPES: tuple[tuple[str, dict[str, str]], ...] = (
    ("/metrics", {}),
    ("/metrics", {"Accept-Encoding": "gzip"}),
    ("/metrics", {"Accept": "application/openmetrics-text;version=1.0.0"}),
    (
        "/metrics",
        {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"},
    ),
    ("/metrics", {"Accept": "text/plain;version=1.0.0;escaping=allow-utf-8"}),
    ("/metrics?name[]=gpu_up&name[]=gpu_power_watts", {}),
)
PAGES = (
    "/",
    "/-/healthy",
    "/-/ready",
    "/api/v1/gpus",
    "/api/v1/roofline",
    "/api/v1/training",
    "/api/v1/diagnosis",
    "/api/v1/specs",
    "/api/openapi.json",
    "/no-such-page",
    "/api/v1/gpus/no-such-gpu",
)
ANSWERS = frozenset({200, 404, 503})
"""What may be answered: 503 by ``/-/ready`` while no GPU is up, 404 by the last two."""
REPORTER = """
import json, os, socket, sys, time
path, base = sys.argv[1], json.loads(sys.argv[2])
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sender.settimeout(1)
number = 0
def send(exiting):
    global number
    number += 1
    report = {**base, "pid": os.getpid(), "sequence": number, "steps": 10 * number,
              "batches": 10 * number, "step_seconds": 0.01 * number,
              "phase_seconds": {"data": 0.004 * number, "checkpoint": 0.001 * number},
              "exit": exiting}
    try:
        sender.sendto(json.dumps(report).encode(), path)
    except OSError:
        pass
import select
while not select.select([sys.stdin], [], [], 0.1)[0]:
    send(False)
if base["rank"] % 2:
    send(True)
"""
"""A job that reports ten times a second until its standard input is closed; half of them say so."""


class Web:
    """One client that scrapes and looks at pages, now on a kept connection and now on a new one."""

    def __init__(self, port: int, uuids: Sequence[str]) -> None:
        self._port = port
        paths = [*PAGES, *(f"/gpu/{uuid}" for uuid in uuids)]
        paths += [f"/api/v1/gpus/{uuid}/history" for uuid in uuids]
        self._scrapes: Iterator[tuple[str, dict[str, str]]] = itertools.cycle(SCRAPES)
        self._pages: Iterator[tuple[str, dict[str, str]]] = itertools.cycle(
            [(path, {}) for path in paths]
        )
        self._kept: http.client.HTTPConnection | None = None
        self.answered = 0
        self.unexpected: list[str] = []

    def scrape(self) -> None:
        """Ask for the next of the formats on the kept connection."""
        if self._kept is None:
            self._kept = self._connection()
        self._ask(self._kept, *next(self._scrapes))

    def view(self) -> None:
        """Ask for the next page on a connection of its own."""
        connection = self._connection()
        self._ask(connection, *next(self._pages))
        connection.close()

    def leave(self) -> None:
        """Close the kept connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)

    def _ask(
        self, connection: http.client.HTTPConnection, path: str, headers: dict[str, str]
    ) -> None:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        self.answered += 1
        if answer.status not in ANSWERS:
            self.unexpected.append(f"{path}: {answer.status}")


class Viewers:
    """Live pages: some are read, some only held open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reading: list[StreamClient] = []
        self._silent: list[StreamClient] = []

    def come(self) -> None:
        """Open three that read and one that does not."""
        self._reading += [StreamClient(self._port) for _ in range(3)]
        self._silent.append(StreamClient(self._port, receive_buffer=4096))

    def read(self) -> None:
        """Take what there is."""
        for each in self._reading:
            each.read_for(0.002)
            each.data = b""

    def leave(self) -> None:
        """Close all."""
        for each in self._reading + self._silent:
            each.close()
        self._reading, self._silent = [], []


class Jobs:
    """Training jobs that come and go, and one of this process that stays."""

    def __init__(self, path: str, uuids: Sequence[str]) -> None:
        self._path = path
        self._uuids = uuids
        self._numbers = itertools.count(1)
        self._running: list[subprocess.Popen[bytes]] = []
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender.settimeout(1)
        self._reports = 0

    def stay(self) -> None:
        """Send a report of the job that stays."""
        self._reports += 1
        seconds = 0.001 * self._reports
        report = {
            **self._base("steady", 0, self._uuids[0], 0),
            "pid": os.getpid(),
            "sequence": self._reports,
            "steps": self._reports,
            "batches": self._reports,
            "step_seconds": seconds,
            "phase_seconds": {"data": seconds / 2},
            "phase_gpu_idle_seconds": {"data": seconds / 4},
        }
        self._sender.sendto(json.dumps(report).encode(), self._path)

    def come(self) -> None:
        """Start two jobs of two ranks each, with new names."""
        for _ in range(2):
            number = next(self._numbers)
            for rank in range(2):
                base = self._base(f"job-{number}", rank, self._uuids[rank], number)
                command = [sys.executable, "-I", "-S", "-c", REPORTER, self._path, json.dumps(base)]
                self._running.append(
                    subprocess.Popen(command, stdin=subprocess.PIPE, env=environment())
                )

    def leave(self) -> None:
        """End those that came."""
        for each in self._running:
            each.communicate()
        self._running = []

    def close(self) -> None:
        """Send no more."""
        self.leave()
        self._sender.close()

    @staticmethod
    def _base(name: str, rank: int, uuid: str, number: int) -> dict[str, Any]:
        return {
            "version": 1,
            "id": f"{number * 16 + rank:032x}",
            "job": name,
            "rank": rank,
            "world_size": 2,
            "device": uuid,
        }
