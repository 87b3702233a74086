# SPDX-License-Identifier: Apache-2.0
"""A GPU without GPM, sampled by the daemon's child on a fake of CUPTI."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeDriver, RunCommand, StartDaemon
from tests.e2e.daemons import Page
from tests.fake_cupti import FakeCupti, uuid_of

P = ".avg.pct_of_peak_sustained_elapsed"
SAMPLED = [
    f"value sm__cycles_active{P} 80",
    f"value gr__cycles_active{P} 90",
    f"value sm__pipe_tensor_cycles_active_realtime_v2{P} 70",
]


def is_measured(page: Page) -> bool:
    rows = page.rows("gpu_saturation_source_info", source="cupti")
    return bool(rows) and page.get("gpu_sm_active_ratio", gpu="0") is not None


def test_a_geforce_is_measured_and_a_profiler_gets_the_counters(
    make_driver: MakeDriver, start: StartDaemon, command: RunCommand, tmp_path: Path
) -> None:
    """An RTX 4090; `counters pause` and `resume` cost it its counters for as long, and no total."""
    gpu = {"product": "rtx-4090", "uuid": uuid_of(0), "utilization": 90, "power": 300}
    driver = make_driver({"devices": [gpu]})
    fake = FakeCupti(tmp_path, ("AD102",), *SAMPLED)
    fake.install(tmp_path / "site", 13)
    env = {**driver.environment(), **fake.environment, "PYTHONPATH": str(tmp_path / "site")}
    paths = (each["LD_LIBRARY_PATH"] for each in (fake.environment, driver.environment()))
    env["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    daemon = start(env, "--source.cupti", wait_for=1)
    page = daemon.page_when(is_measured, "measured")
    assert page.value("gpu_sm_active_ratio", gpu="0") == pytest.approx(0.8)
    assert page.value("gpu_pipe_active_ratio", gpu="0", pipe="tensor") == pytest.approx(0.7)
    assert page.value("roofline_exporter_source_up", source="cupti") == 1
    with daemon.watch() as watch:
        done = command({}, "counters", "pause", f"--url={daemon.url}")
        assert (done.wait(), done.stdout) == (0, b"released: cupti of GPU 0\n"), done.lines()
        assert fake.calls()[-3:-1] == ["cuptiPmSamplingStop", "cuptiPmSamplingDisable"]
        bounded = daemon.page_when(lambda page: not is_measured(page), "bounded")
        ((state, _),) = bounded.rows("roofline_exporter_reading_state", group="cupti")
        assert state["state"] == "paused"
        assert bounded.value("gpu_up", gpu="0") == 1
        done = command({}, "counters", "resume", f"--url={daemon.url}")
        assert (done.wait(), done.stdout) == (0, b"resumed\n"), done.lines()
        daemon.page_when(is_measured, "measured again")
    assert watch.counters_fell() == []
