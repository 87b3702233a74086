# SPDX-License-Identifier: Apache-2.0
"""The host's clock may say anything: no command ends in a traceback for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import require_tool
from tests.waiting import wait_until

SHIFTED = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *found) {
    int failed = syscall(SYS_clock_gettime, clock, found);
    if (!failed && clock == CLOCK_REALTIME) found->tv_sec += atoll(getenv("CLOCK_SHIFT"));
    return failed;
}
"""
YEARS = [
    pytest.param(60, id="1970"),
    pytest.param(16_730_000_000, id="2500", marks=pytest.mark.slow),
]

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(name="start", params=YEARS)
def _start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Starts a command whose clock says such a year."""
    library = tmp_path / "clock.so"
    cc = [require_tool("cc"), "-shared", "-fPIC", "-o", str(library), "-x", "c", "-"]
    subprocess.run(cc, input=SHIFTED, text=True, check=True)
    shift = request.param - int(time.time())
    environment = {**os.environ, "LD_PRELOAD": str(library), "CLOCK_SHIFT": str(shift)}

    def start(*words: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "exporter", *words],
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
        return started[-1]

    started: list[subprocess.Popen[str]] = []
    yield start
    for command in started:
        with command:
            command.kill()


def test_every_page_and_command(start: Start, tmp_path: Path) -> None:
    """The daemon serves, is asked, recorded and replayed."""

    def says(*words: str) -> str | None:
        """What a command says; None where it fails, as on a busy machine that is too slow."""
        text, _ = (command := start(*words)).communicate()
        assert "Traceback" not in text
        return text if command.returncode == 0 else None

    def names_gpus(where: str) -> bool:
        return "H100" in (says("status", where) or "")

    recording = str(tmp_path / "recording.jsonl.gz")
    assert says("record", "--demo", "--duration=2s", recording)
    for source in ("--demo", f"--replay={recording}"):
        daemon = start(source, "--web.listen-address=127.0.0.1:0", "--no-source.training")
        assert daemon.stdout is not None
        log: list[str] = []
        for line in daemon.stdout:
            log.append(line)
            if "listening on" in line:
                break
        url = log[-1].partition("http://")[2].partition("/")[0]
        wait_until(partial(names_gpus, f"--url={url}"))
        wait_until(partial(says, "healthcheck", f"--url={url}"))
        for page in ("metrics", "metrics/dcgm", "", "gpu/0", "api/v1/gpus/0/history"):
            with urllib.request.urlopen(f"http://{url}/{page}") as answer:
                assert answer.status == 200
        daemon.terminate()
        text, _ = daemon.communicate()
        assert daemon.returncode == 0
        assert "Traceback" not in "".join(log) + text
