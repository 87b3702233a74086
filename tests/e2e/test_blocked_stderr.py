# SPDX-License-Identifier: Apache-2.0
"""Standard error is a pipe that nobody reads: the daemon serves, reloads and stops all the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from signal import SIGHUP

import pytest

from tests.e2e.daemons import COMMAND, START_SECONDS
from tests.e2e.processes import Process
from tests.pipes import fill
from tests.serving import answer_of, free_port
from tests.waiting import wait_until

STOP_SECONDS = 5.0
"""The usual stop, and the second for which the exit waits for a reader."""


@dataclass(frozen=True)
class Muted:
    """A daemon that logs as much as it can to nobody."""

    process: Process
    url: str

    def answers(self) -> bool:
        try:
            return b"gpu_up" in answer_of(self.url, timeout=5)
        except OSError:
            return False

    def stops_in_time(self) -> bool:
        code, seconds = self.process.stop()
        return code == 0 and seconds < STOP_SECONDS


@pytest.fixture
def muted(tmp_path: Path, processes: list[Process]) -> Callable[[str], Muted]:
    """Starts one whose standard error goes to what a shell calls so."""

    def run(stderr: str) -> Muted:
        (tmp_path / "config.yml").write_text("poll: {interval: 100ms}\n", encoding="utf-8")
        address = f"127.0.0.1:{free_port()}"
        words = ["serve", "--demo", "--log.level=debug", "--no-source.training"]
        words += [f"--web.listen-address={address}", f"--config.file={tmp_path / 'config.yml'}"]
        shell = ["sh", "-c", f'exec "$@" 2>{stderr}', "sh"]
        processes.append(Process([*shell, *COMMAND, *words], tmp_path / "daemon"))
        made = Muted(processes[-1], f"http://{address}/metrics")
        wait_until(made.answers, START_SECONDS, "a page although nobody reads the log")
        return made

    return run


@pytest.fixture
def full_pipe(tmp_path: Path) -> Iterator[int]:
    """A named pipe into which nothing fits, `stderr` in the test's folder."""
    os.mkfifo(tmp_path / "stderr")
    end = os.open(tmp_path / "stderr", os.O_RDWR)
    assert fill(end)
    yield end
    os.close(end)


def test_a_daemon_that_nobody_reads_serves_reloads_and_stops(
    muted: Callable[[str], Muted], full_pipe: int, tmp_path: Path
) -> None:
    """Every line waits or is dropped; nothing else waits for it."""
    daemon = muted(f"{tmp_path}/stderr")
    for _ in range(20):
        daemon.process.signal(SIGHUP)
        assert daemon.answers()
    assert daemon.stops_in_time()


def test_a_reader_that_comes_back_gets_what_waited(
    muted: Callable[[str], Muted], full_pipe: int, tmp_path: Path
) -> None:
    """The lines since the start are there, in their order, and the stop is prompt."""
    daemon = muted(f"{tmp_path}/stderr")
    daemon.process.signal(SIGHUP)
    seen = b""
    while b"configuration reloaded" not in seen:
        seen += os.read(full_pipe, 65536)
    lines = seen.lstrip(b"x").decode().splitlines()
    assert all(line.startswith("time=") for line in lines)
    assert "listening on" in seen.decode()
    assert daemon.stops_in_time()
    assert b"msg=stopped" in os.read(full_pipe, 65536)


@pytest.mark.parametrize("sink", [pytest.param("/dev/full", marks=pytest.mark.slow), "&-"])
def test_a_standard_error_that_takes_nothing_changes_nothing(
    muted: Callable[[str], Muted], sink: str
) -> None:
    """It is full, or was closed before the start."""
    assert muted(sink).stops_in_time()
