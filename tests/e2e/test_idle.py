# SPDX-License-Identifier: Apache-2.0
"""``idle`` beside a daemon on the fake driver, in real time: scripts go by its exit code."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import MakeDriver, RunCommand, StartDaemon
from tests.e2e.daemons import Daemon
from tests.e2e.processes import Process
from tests.fake_nvml import FakeNvml
from tests.waiting import wait_until

IDLE, BUSY, NOT_KNOWN = 0, 1, 2
QUIET = {"product": "t4", "utilization": 0}


@pytest.mark.slow
def test_a_script_can_go_by_it(
    make_driver: MakeDriver, start: StartDaemon, command: RunCommand
) -> None:
    """Too young, idle, busy, lost, and without a daemon; a minute has not passed in any of it."""
    driver = make_driver({"devices": [QUIET, QUIET]})
    daemon = start(driver, wait_for=2)

    young = idle(command, driver, daemon, "--for=1m")
    assert young.wait() == NOT_KNOWN
    assert b"not known: GPU 0: the exporter has seen it idle for " in young.stdout
    wait_until(lambda: idle(command, driver, daemon, "--for=3s").wait() == IDLE)
    answer = idle(command, driver, daemon, "--for=3s", "--gpu=1", "--json")
    assert json.loads(answer.stdout)["gpus"][0]["gpu"] == 1

    driver.device(1, utilization=80)
    wait_until(lambda: idle(command, driver, daemon, "--for=3s").wait() == BUSY)
    assert idle(command, driver, daemon, "--for=3s", "--gpu=0").wait() == IDLE
    assert idle(command, driver, daemon, "--for=3s", "--user=nobody-here").wait() == NOT_KNOWN

    driver.device(0, lost=1)
    wait_until(lambda: idle(command, driver, daemon, "--for=3s", "--gpu=0").wait() == NOT_KNOWN)

    daemon.stop()
    gone = idle(command, driver, daemon, "--for=3s", "--gpu=0")
    assert gone.wait() == NOT_KNOWN
    (line,) = gone.lines()
    assert line.startswith("not known: http://127.0.0.1:")


def test_a_mistake_is_no_idle_gpu(make_driver: MakeDriver, command: RunCommand) -> None:
    """It has the code of what is not known, and one line."""
    run = command(make_driver({"devices": [QUIET]}), "idle", "--for=soon")
    assert run.wait() == NOT_KNOWN
    (line,) = run.lines()
    assert "--for: expected a duration from 1s to 30d" in line


def idle(command: RunCommand, driver: FakeNvml, daemon: Daemon, *words: str) -> Process:
    """Ask the daemon."""
    address = f"--web.listen-address=127.0.0.1:{daemon.port}"
    return command(driver, "idle", address, *words)
