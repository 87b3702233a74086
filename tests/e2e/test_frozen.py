# SPDX-License-Identifier: Apache-2.0
"""A daemon whose publisher hangs still answers, and says that it should be started anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemons import COMMAND, Daemon
from tests.e2e.processes import Process
from tests.waiting import wait_until

PROGRAM = """
import os, sys, time
from exporter.publisher.tick import Publisher
from exporter.web import health

health.SILENT_SECONDS = 1.0
tick = Publisher.tick

def troubled(publisher):
    while os.path.exists(sys.argv[1] + "/frozen"):
        time.sleep(0.05)
    if os.path.exists(sys.argv[1] + "/dead"):
        raise SystemExit
    return tick(publisher)

Publisher.tick = troubled
from exporter.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("trouble", ["frozen", "dead"])
def test_a_publisher_in_trouble_is_not_healthy(
    folders: Iterator[Path], processes: list[Process], tmp_path: Path, trouble: str
) -> None:
    """`healthcheck` says so, too; one that only hung for a while is healthy again."""
    program = (sys.executable, "-c", PROGRAM, str(tmp_path))
    daemon = Daemon(next(folders), {}, ("--demo", "--poll.interval=100ms"), program)
    processes.append(daemon)
    daemon.wait_for_gpus(8)
    assert daemon.get("/-/healthy").text == "healthy\n"
    (tmp_path / trouble).touch()
    wait_until(lambda: daemon.get("/-/healthy").status == 503)
    said = "not healthy: no reading round has ended for "
    assert daemon.get("/-/healthy").text.startswith(said)
    check = Process([*COMMAND, "healthcheck", f"--url={daemon.url}"], next(folders))
    assert check.wait() == 1
    assert check.lines(f"{daemon.url}/-/healthy: 503 {said}")
    assert daemon.get("/metrics").status == 200
    (tmp_path / trouble).unlink()
    if trouble == "frozen":
        wait_until(lambda: daemon.get("/-/healthy").status == 200)
