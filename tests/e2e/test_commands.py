# SPDX-License-Identifier: Apache-2.0
"""The other subcommands, run as a user would beside a daemon or without one."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import MakeDriver, RunCommand, StartDaemon
from tests.e2e.daemons import Daemon, Page
from tests.e2e.processes import Process
from tests.fake_nvml import FakeNvml, fault
from tests.waiting import wait_until


@pytest.fixture
def driver(make_driver: MakeDriver) -> FakeNvml:
    """A GPU with hardware counters and one without."""
    gpm = {"graphics": 60, "sm": 50, "tensor": 30, "dram": 20, "fp64": 0, "fp32": 4, "fp16": 2}
    return make_driver(
        {
            "devices": [
                {"product": "h100-sxm", "utilization": 60, "gpm": gpm},
                {"product": "t4", "utilization": 40},
            ]
        }
    )


def test_once_prints_a_page_with_saturation(driver: FakeNvml, command: RunCommand) -> None:
    """It reads twice, so that what needs two samples is there, and says nothing else."""
    run = command(driver, "once", "--poll.interval=500ms")
    assert run.wait() == 0
    assert run.lines() == []
    page = Page(run.stdout.decode())
    assert page.value("gpu_saturation_ratio", gpu="0") == pytest.approx(0.3, abs=0.01)
    assert page.get("gpu_saturation_ratio", gpu="1") is None
    upper = page.value("gpu_saturation_upper_ratio", gpu="1")
    assert 0.4 <= upper < 1.0
    assert page.value("gpu_utilization_ratio", gpu="1") == pytest.approx(0.4, abs=0.01)


def test_a_port_that_is_taken_is_one_line(
    driver: FakeNvml, start: StartDaemon, command: RunCommand
) -> None:
    """A second daemon on the port ends with exit code 1; the first goes on."""
    first = start(driver, wait_for=2)
    second = command(driver, "serve", f"--web.listen-address=127.0.0.1:{first.port}")
    assert second.wait() == 1
    (line,) = second.lines()
    assert f"127.0.0.1:{first.port}" in line
    assert "in use" in line
    assert first.get("/-/ready").status == 200


@pytest.mark.parametrize(
    ("call", "latency_us", "words"),
    [
        ("nvmlDeviceGetUUID", 1_500_000, ("once",)),
        ("nvmlDeviceGetFieldValues", 700_000, ("status", "--json")),
    ],
)
def test_a_slow_gpu_is_read_twice(
    make_driver: MakeDriver,
    command: RunCommand,
    call: str,
    latency_us: int,
    words: tuple[str, ...],
) -> None:
    """A GPU that opens for seconds, as without persistence mode, or whose readings take longer than
    the interval, is printed with what two readings tell."""
    slow = fault(call, gpu=1, latency_us=latency_us)
    driver = make_driver({"devices": {"count": 2}, "faults": [slow]})
    run = command(driver, *words, "--poll.interval=200ms")
    assert run.wait() == 0, run.lines()
    if words[0] == "status":
        gpus = json.loads(run.stdout)["gpus"]
        found = [gpu["shares"][0]["saturation"].get("ratio") for gpu in gpus if gpu["up"]]
    else:
        page = Page(run.stdout.decode())
        assert [page.value("gpu_up", gpu=gpu) for gpu in ("0", "1")] == [1, 1]
        found = [page.get("gpu_saturation_ratio", gpu=gpu) for gpu in ("0", "1")]
    assert len(found) == 2
    assert None not in found


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
