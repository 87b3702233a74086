# SPDX-License-Identifier: Apache-2.0
"""The other subcommands, run as a user would beside a daemon or without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import MakeDriver, RunCommand, StartDaemon
from tests.e2e.daemons import Page
from tests.fake_nvml import FakeNvml, fault

NO_LIBRARY = "--nvml.library=/nonexistent/libnvidia-ml.so.1"


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


def test_once_without_a_driver_is_one_line(command: RunCommand) -> None:
    """Exit code 1, nothing on standard output, the reason on standard error."""
    run = command({}, "once", NO_LIBRARY)
    assert run.wait() == 1
    assert run.stdout == b""
    (line,) = run.lines()
    assert line.startswith("roofline-exporter: --nvml.library /nonexistent/libnvidia-ml.so.1")


def test_healthcheck_asks_the_daemon(
    driver: FakeNvml, start: StartDaemon, command: RunCommand
) -> None:
    """Health and readiness of a daemon with GPUs, of one without, and of none."""
    with_gpus, without = start(driver, wait_for=2), start({}, NO_LIBRARY)
    gone = start({}, NO_LIBRARY)
    gone.stop()
    for url, flags, expected in (
        (with_gpus.url, (), 0),
        (with_gpus.url, ("--ready",), 0),
        (without.url, (), 0),
        (without.url, ("--ready",), 1),
        (gone.url, (), 1),
    ):
        run = command({}, "healthcheck", "--url", url, *flags)
        assert run.wait() == expected, (url, flags, run.lines())
        said = run.lines() if expected else run.stdout.decode().splitlines()
        assert len(said) == 1
        assert url in said[0]


def test_healthcheck_finds_the_daemon_by_the_same_flags(
    driver: FakeNvml, start: StartDaemon, command: RunCommand
) -> None:
    """Without --url it asks the address that serve would listen on."""
    daemon = start(driver)
    run = command({"ROOFLINE_WEB_LISTEN_ADDRESS": f":{daemon.port}"}, "healthcheck")
    assert run.wait() == 0, run.lines()


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


def test_bad_settings_are_named(tmp_path: Path, command: RunCommand) -> None:
    """A bad flag, configuration or spec file ends serve with exit code 2 and names the place.

    All mistakes of a spec file are named, each on its line.
    """
    config, specs = tmp_path / "roofline.yml", tmp_path / "specs.yml"
    config.write_text("metrics:\n  level: half\n")
    specs.write_text("products:\n  x: {sm_count: many}\n")
    for flag, expected, count in (
        ("--poll.interval=soon", "--poll.interval", 1),
        (f"--config.file={config}", f"{config}:2: ", 1),
        # sm_count, and the five keys that each entry needs.
        (f"--specs={specs}", f"{specs}:2: ", 6),
    ):
        run = command({}, "serve", "--web.listen-address=127.0.0.1:0", flag)
        assert run.wait() == 2, flag
        lines = run.lines()
        assert len(lines) == count
        assert all(expected in line for line in lines)


def test_once_waits_for_a_gpu_that_opens_slowly(
    make_driver: MakeDriver, command: RunCommand
) -> None:
    """A GPU that wakes up for seconds is on the page, as one without persistence mode does."""
    slow = fault("nvmlDeviceGetUUID", gpu=1, latency_us=1_500_000)
    driver = make_driver({"devices": {"count": 2}, "faults": [slow]})
    run = command(driver, "once", "--poll.interval=200ms")
    assert run.wait() == 0, run.lines()
    page = Page(run.stdout.decode())
    for gpu in ("0", "1"):
        assert page.value("gpu_up", gpu=gpu) == 1
        assert page.get("gpu_saturation_ratio", gpu=gpu) is not None
