# SPDX-License-Identifier: Apache-2.0
"""The other subcommands, run as a user would beside a daemon or without one."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import MakeDriver, RunCommand, StartDaemon
from tests.e2e.daemons import Page
from tests.fake_nvml import FakeNvml, fault


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
    ("call", "latency_us"),
    [("nvmlDeviceGetUUID", 1_500_000), ("nvmlDeviceGetFieldValues", 700_000)],
)
@pytest.mark.parametrize("words", [("once",), ("status", "--json")])
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
