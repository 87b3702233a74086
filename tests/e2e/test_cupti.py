# SPDX-License-Identifier: Apache-2.0
"""A GPU without GPM, sampled by the daemon's child on a fake of CUPTI."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.daemons import COMMAND, Daemon, Page
from tests.fake_cupti import FakeCupti, uuid_of
from tests.waiting import wait_until

P = ".avg.pct_of_peak_sustained_elapsed"
SAMPLED = [
    f"value sm__cycles_active{P} 80",
    f"value gr__cycles_active{P} 90",
    f"value sm__pipe_tensor_cycles_active_realtime_v2{P} 70",
]

Sample = Callable[..., tuple[Daemon, FakeCupti]]


@pytest.fixture
def sample(make_driver: MakeDriver, start: StartDaemon, tmp_path: Path) -> Sample:
    """Starts a daemon on an RTX 4090 that CUPTI can sample."""

    def run(*flags: str) -> tuple[Daemon, FakeCupti]:
        gpu = {"product": "rtx-4090", "uuid": uuid_of(0), "utilization": 90, "power": 300}
        driver = make_driver({"devices": [gpu]})
        fake = FakeCupti(tmp_path, ("AD102",), *SAMPLED)
        fake.install(tmp_path / "site", 13)
        env = {**driver.environment(), **fake.environment, "PYTHONPATH": str(tmp_path / "site")}
        paths = (each["LD_LIBRARY_PATH"] for each in (fake.environment, driver.environment()))
        env["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
        return start(env, "--source.cupti", *flags, wait_for=1), fake

    return run


def is_measured(page: Page) -> bool:
    rows = page.rows("gpu_saturation_source_info", source="cupti")
    return bool(rows) and page.get("gpu_sm_active_ratio", gpu="0") is not None


def state(page: Page) -> str | None:
    rows = page.rows("roofline_exporter_reading_state", group="cupti")
    return rows[0][0]["state"] if rows else None


def children(daemon: Daemon) -> list[int]:
    """The daemon's child processes."""
    found = Path(f"/proc/{daemon.pid}/task").glob("*/children")
    return [int(pid) for each in found for pid in each.read_text("ascii").split()]


def lend(daemon: Daemon, word: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "counters", word, f"--url={daemon.url}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_geforce_is_measured_and_a_profiler_gets_the_counters(sample: Sample) -> None:
    daemon, fake = sample()
    page = daemon.page_when(is_measured, "measured")
    assert page.value("gpu_sm_active_ratio", gpu="0") == pytest.approx(0.8)
    assert page.value("gpu_pipe_active_ratio", gpu="0", pipe="tensor") == pytest.approx(0.7)
    assert page.value("roofline_exporter_source_up", source="cupti") == 1
    with daemon.watch() as watch:
        done = lend(daemon, "pause")
        assert (done.returncode, done.stdout) == (0, "released: cupti of GPU 0\n"), done.stderr
        assert fake.calls()[-3:-1] == ["cuptiPmSamplingStop", "cuptiPmSamplingDisable"]
        bounded = daemon.page_when(lambda page: not is_measured(page), "bounded")
        assert state(bounded) == "paused"
        assert bounded.value("gpu_up", gpu="0") == 1
        done = lend(daemon, "resume")
        assert (done.returncode, done.stdout) == (0, "resumed\n"), done.stderr
        daemon.page_when(is_measured, "measured again")
    assert watch.counters_fell() == []


@pytest.mark.slow
def test_a_child_that_is_killed_costs_readings_for_some_seconds(sample: Sample) -> None:
    daemon, _ = sample()
    daemon.page_when(is_measured, "measured")
    with daemon.watch() as watch:
        (child,) = children(daemon)
        os.kill(child, signal.SIGKILL)
        failures = "roofline_exporter_source_failures_total"
        daemon.page_when(lambda page: page.get(failures, source="cupti") == 1, "a failure")
        daemon.page_when(lambda page: is_measured(page) and not state(page), "measured again")
    assert children(daemon) != [child]
    assert all(scrape.page.value("gpu_up", gpu="0") == 1 for scrape in watch.scrapes)
    assert watch.counters_fell() == []
    assert len(daemon.lines("killed by signal 9")) == 1


@pytest.mark.slow
def test_the_daemon_ends_with_its_child(sample: Sample) -> None:
    daemon, fake = sample()
    daemon.page_when(is_measured, "measured")
    (child,) = children(daemon)

    os.kill(daemon.pid, signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{child}").exists(), what="the child's end")

    assert fake.calls()[-1] == "cuptiProfilerDeInitialize"


@pytest.mark.slow
def test_signals_do_not_end_a_daemon_without_such_counters(
    make_driver: MakeDriver, start: StartDaemon
) -> None:
    daemon = start(make_driver({"devices": [{"product": "h100-sxm"}]}), wait_for=1)

    done = lend(daemon, "pause")

    line = "no source of this daemon has counters that a profiler needs\n"
    assert (done.returncode, done.stdout) == (0, line), done.stderr
    assert daemon.metrics().value("gpu_up", gpu="0") == 1
