# SPDX-License-Identifier: Apache-2.0
"""What a training job says: a socket in the daemon's place, and jobs that are run against it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exporter.sources.training.decode import decode

ROOT = Path(__file__).resolve().parents[2]


class Listener:
    """The daemon's end of the socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def datagrams(self) -> list[bytes]:
        """Return what has arrived since the last call."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(1 << 16))
            except BlockingIOError:
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
    directory: Path, source: str, socket_path: Path | str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script as a job that reports to a socket."""
    script = directory / "job.py"
    script.write_text(textwrap.dedent(source), encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "ROOFLINE_TRAINING_SOCKET": str(socket_path),
            "XDG_RUNTIME_DIR": str(directory / "none"),
            **(environ or {}),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
