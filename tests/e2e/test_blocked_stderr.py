# SPDX-License-Identifier: Apache-2.0
"""Standard error is a pipe that nobody reads: the daemon serves, reloads and stops all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.daemons import COMMAND, START_SECONDS
from tests.e2e.processes import ROOT, environment
from tests.pipes import fill
from tests.serving import free_port
from tests.waiting import wait_until

STOP_SECONDS = 5.0
"""The usual stop, and the second for which the exit waits for a reader."""


@dataclass(frozen=True)
class Muted:
    """A daemon whose standard error is full, and the end of the pipe that could be read."""

    process: subprocess.Popen[bytes]
    url: str
    reader: int

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=5) as answer:
            return str(answer.read(), "utf-8")


@contextmanager
def muted(directory: Path) -> Iterator[Muted]:
    """Run a daemon that logs as much as it can to nobody."""
    reader, end = os.pipe()
    filled = fill(end)
    port = free_port()
    (directory / "config.yml").write_text("poll: {interval: 100ms}\n", encoding="utf-8")
    command = [
        *COMMAND,
        "serve",
        f"--web.listen-address=127.0.0.1:{port}",
        "--demo",
        "--log.level=debug",
        "--no-source.training",
        f"--config.file={directory / 'config.yml'}",
    ]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=end
    )
    os.close(end)
    made = Muted(process, f"http://127.0.0.1:{port}", reader)
    try:
        wait_until(lambda: answers(made), START_SECONDS, "a page although nobody reads the log")
        yield made
        assert filled
    finally:
        process.kill()
        process.wait()
        os.close(reader)


def answers(daemon: Muted) -> bool:
    assert daemon.process.poll() is None, "it ended"
    try:
        return "gpu_up" in daemon.metrics()
    except OSError:
        return False


def stop(daemon: Muted) -> float:
    """Send SIGTERM; return the seconds until it had ended with code 0."""
    started = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(3 * STOP_SECONDS) == 0
    return time.monotonic() - started


def test_a_daemon_that_nobody_reads_serves_reloads_and_stops(tmp_path: Path) -> None:
    """Every line waits or is dropped; nothing else waits for it."""
    with muted(tmp_path) as daemon:
        for _ in range(20):
            daemon.process.send_signal(signal.SIGHUP)
            daemon.metrics()
        assert stop(daemon) < STOP_SECONDS


def test_a_reader_that_comes_back_gets_what_waited(tmp_path: Path) -> None:
    """The lines since the start are there, in their order, and the stop is prompt."""
    with muted(tmp_path) as daemon:
        daemon.process.send_signal(signal.SIGHUP)
        seen = b""
        while b"configuration reloaded" not in seen:
            seen += os.read(daemon.reader, 65536)
        lines = seen.lstrip(b"x").decode().splitlines()
        assert all(line.startswith("time=") for line in lines)
        assert "listening on" in seen.decode()
        assert stop(daemon) < STOP_SECONDS
        assert b"msg=stopped" in os.read(daemon.reader, 65536)


@pytest.mark.parametrize("sink", [pytest.param("/dev/full", marks=pytest.mark.slow), "closed"])
def test_a_standard_error_that_takes_nothing_changes_nothing(tmp_path: Path, sink: str) -> None:
    """It is full, or was closed before the start."""
    port = free_port()
    shell = f'exec "$@" 2>{"&-" if sink == "closed" else sink}'
    flags = ["serve", f"--web.listen-address=127.0.0.1:{port}", "--demo", "--no-source.training"]
    process = subprocess.Popen(
        ["sh", "-c", shell, "sh", *COMMAND, *flags], cwd=ROOT, env=environment()
    )
    daemon = Muted(process, f"http://127.0.0.1:{port}", -1)
    try:
        wait_until(lambda: answers(daemon), START_SECONDS, "a page")
        assert stop(daemon) < STOP_SECONDS
    finally:
        process.kill()
        process.wait()
