# SPDX-License-Identifier: Apache-2.0
"""Runs real PyTorch jobs with and without instrumentation, and takes what they report."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

JOBS = Path(__file__).parent / "jobs"
RUN = (sys.executable, "-m", "exporter", "run", "--job", "tested", "--")
SECONDS = 180
DATAGRAM_BYTES = 1 << 16

Report = Mapping[str, Any]


def require_module(name: str) -> None:
    """Skip a test whose library is not installed, or fail where everything has to be."""
    if importlib.util.find_spec(name) is not None:
        return
    reason = f"{name} is not installed (pip install --group training)"
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(f"{reason}, and REQUIRE_ALL=1 says that it has to be")
    pytest.skip(reason)


@dataclass(frozen=True, slots=True)
class Done:
    """What a job left behind."""

    returncode: int
    stdout: bytes
    stderr: bytes
    files: Mapping[str, bytes]
    """What it wrote into its folder, by path."""
    reports: tuple[Report, ...]
    """The last one of each process, by rank."""

    def says(self) -> tuple[int, str, str]:
        """Return what the person who started it sees."""
        return self.returncode, self.stdout.decode(), self.stderr.decode()


class Receiver:
    """A socket as the daemon has it, and the last report under each id."""

    def __init__(self, path: Path) -> None:
        self._endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._endpoint.bind(str(path))
        self._last: dict[str, Report] = {}
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        while datagram := self._endpoint.recv(DATAGRAM_BYTES):
            report = json.loads(datagram)
            self._last[report["id"]] = report

    def reports(self) -> tuple[Report, ...]:
        """Stop receiving and return what came."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", self._endpoint.getsockname())
        self._thread.join()
        self._endpoint.close()
        return tuple(sorted(self._last.values(), key=lambda report: int(report["rank"])))


@contextmanager
def _receiving() -> Iterator[tuple[Receiver, Path]]:
    # Paths of sockets are at most 107 bytes long: pytest's own folders may be longer.
    with tempfile.TemporaryDirectory(prefix="job") as folder:
        path = Path(folder) / "s"
        yield Receiver(path), path


def run_job(folder: Path, words: Sequence[str], *, instrumented: bool) -> Done:
    """Run a command in an empty folder, which is the same one with and without."""
    folder.mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROOFLINE_")}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}
    with _receiving() as (receiver, path):
        done = subprocess.run(
            [*(RUN if instrumented else ()), *words],
            env={**env, "ROOFLINE_TRAINING_SOCKET": str(path)},
            cwd=folder,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        reports = receiver.reports()
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    shutil.rmtree(folder)
    return Done(done.returncode, done.stdout, done.stderr, files, reports)


def run_both(folder: Path, *words: str) -> tuple[Done, Done]:
    """Run a job without and with instrumentation."""
    plain = run_job(folder / "job", words, instrumented=False)
    return plain, run_job(folder / "job", words, instrumented=True)
