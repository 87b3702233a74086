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
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exporter.sources.training.decode import decode

ROOT = Path(__file__).resolve().parents[2]
JOB_SECONDS = 60


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
    directory: Path, source: str, daemon: Listener | Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script as a job that reports to a listener, or to a path where nobody listens."""
    script = directory / "job.py"
    script.write_text(textwrap.dedent(source), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, str(script)],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "ROOFLINE_TRAINING_SOCKET": str(
                daemon.path if isinstance(daemon, Listener) else daemon
            ),
            "XDG_RUNTIME_DIR": str(directory / "none"),
            **(environ or {}),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    give_up_at = time.monotonic() + JOB_SECONDS
    while True:
        try:
            stdout, stderr = process.communicate(timeout=0.1)
        except subprocess.TimeoutExpired:
            if time.monotonic() > give_up_at:
                process.kill()
            if isinstance(daemon, Listener):
                daemon.receive()
            continue
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
