# SPDX-License-Identifier: Apache-2.0
"""Signals, standard error and files that are not what they should be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.abuse.conftest import StartDemo
from tests.abuse.target import MOST_MB, Record, under_attack
from tests.e2e.daemons import COMMAND
from tests.e2e.processes import ROOT, environment
from tests.waiting import wait_until

END_SECONDS = 5.0
REFUSAL_SECONDS = 10.0
"""In which a bad file is refused; loading the program is most of it."""
STORM = 3000
MORE_THREADS = 8


def test_a_storm_of_reloads(start_demo: StartDemo, tmp_path: Path, record_property: Record) -> None:
    """Thousands of SIGHUPs: a few threads, and the last state of the file is what holds."""
    file = tmp_path / "config.yml"
    file.write_text("metrics: {level: full}\n")
    daemon = start_demo(f"--config.file={file}")
    before = daemon.threads()
    most = before
    with under_attack(daemon, f"{STORM:,} SIGHUPs", record_property, quiet=False):
        for number in range(STORM):
            daemon.signal(signal.SIGHUP)
            if number % 20 == 0:
                most = max(most, daemon.threads())
                time.sleep(0.01)
        file.write_text("metrics: {level: core}\n")
        daemon.signal(signal.SIGHUP)
        wait_until(
            lambda: "gpu_sm_occupancy_ratio" not in daemon.metrics().names, 10, "the last state"
        )
    assert most <= before + MORE_THREADS
    code, seconds = daemon.stop()
    assert code == 0
    assert seconds < END_SECONDS


def refused(*words: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run a command that has to refuse its input; return what it said, and its peak MB."""
    script = (
        "import resource, subprocess, sys;"
        f"code = subprocess.call(['timeout', '{2 * REFUSAL_SECONDS:g}', *sys.argv[1:]]);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss);"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script, *COMMAND, *words],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done, int(done.stdout.split()[-1]) * 1024 / 1e6


@pytest.mark.parametrize(
    "flag", ["config.file", "web.config.file", "specs", "replay", "demo.scenario"]
)
def test_only_regular_files_are_read(tmp_path: Path, flag: str) -> None:
    """A FIFO that is never written to would block."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    demo = ("--demo",) if flag == "demo.scenario" else ()
    done, peak_mb = refused("serve", "--web.listen-address=127.0.0.1:0", *demo, f"--{flag}={path}")
    assert done.returncode == 2, done.stderr
    assert str(path) in done.stderr
    assert peak_mb < MOST_MB


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"unknown-{number}: 1\n" for number in range(270_000)),
        "metrics:\n" + "".join(f"  unknown-{number}: 1\n" for number in range(100_000)),
        "a: &a [" + "x," * 2000 + "]\n" + "".join(f"b{n}: [*a, *a]\n" for n in range(2000)),
        "a: " + "[" * 20_000,
        "x: " + "y" * 5_000_000,
    ],
    ids=["270,000 keys", "100,000 nested keys", "aliases", "20,000 levels", "5 MB of text"],
)
def test_a_configuration_that_is_a_bomb(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yml"
    file.write_text(text)
    started = time.monotonic()
    done, peak_mb = refused("check-config", f"--config.file={file}")
    assert done.returncode == 2, done.stderr[-500:]
    assert len((done.stdout + done.stderr).splitlines()) < 120
    assert time.monotonic() - started < REFUSAL_SECONDS
    assert peak_mb < MOST_MB
