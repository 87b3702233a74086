# SPDX-License-Identifier: Apache-2.0
"""What a training job says: a socket in the daemon's place, and jobs that are run against it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exporter.sources.training.decode import decode
from tests.training.differential.harness import Report, receiving

ROOT = Path(__file__).resolve().parents[2]
JOB_SECONDS = 300


class Listener:
    """The daemon's end of the socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        self._received: list[bytes] = []

    def receive(self) -> None:
        """Read what waits: a socket keeps only 10 datagrams (net.unix.max_dgram_qlen)."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._received.append(self._socket.recv(1 << 16))

    def datagrams(self) -> list[bytes]:
        """Return what has arrived since the last call."""
        self.receive()
        found, self._received = self._received, []
        return found

    def reports(self) -> list[dict[str, Any]]:
        """Return the reports since the last call; each must be one that the daemon takes."""
        found = self.datagrams()
        for datagram in found:
            decode(datagram)
        return [json.loads(datagram) for datagram in found]

    def close(self) -> None:
        """Leave a stale socket file behind, as a killed daemon does."""
        self._socket.close()


def run_job(
    directory: Path, source: str, *words: str, prefix: Sequence[str] = (), **environ: str
) -> tuple[subprocess.CompletedProcess[str], tuple[Report, ...]]:
    """Run a script as a job; return how it ended, and the last report under each of its ids."""
    script = directory / "job.py"
    script.write_text(textwrap.dedent(source), encoding="utf-8")
    with receiving() as (receiver, path):
        done = subprocess.run(
            [*prefix, sys.executable, str(script), *words],
            cwd=directory,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "ROOFLINE_TRAINING_SOCKET": str(path),
                "XDG_RUNTIME_DIR": str(directory / "none"),
                **environ,
            },
            capture_output=True,
            text=True,
            timeout=JOB_SECONDS,
            check=False,
        )
        return done, receiver.reports()
