# SPDX-License-Identifier: Apache-2.0
"""A GPU with thousands of processes, each in a control group of its own, is read like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.abuse.target import memory_mb
from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.daemons import Page
from tests.waiting import wait_until

WORKLOADS = "gpu_workload_info"
MOST_MB = 130
"""The daemon with 5,000 holders; without bounds it took 262."""


def procfs(root: Path, count: int) -> Path:
    """A /proc with so many processes, of which each has a container of its own."""
    for pid in range(1, count + 1):
        folder = root / str(pid)
        folder.mkdir(parents=True)
        (folder / "comm").write_text("python\n")
        (folder / "stat").write_text(f"{pid} (python) S " + " ".join(["1"] * 40))
        (folder / "cgroup").write_text(f"0::/docker/{pid:064x}\n")
    return root


@pytest.mark.slow
def test_thousands_of_holders(make_driver: MakeDriver, start: StartDaemon, tmp_path: Path) -> None:
    """It is read, in bounded memory; the pages are of a size, and say what was left out."""
    count = 5_000
    processes = [{"pid": pid, "bytes": pid} for pid in range(1, count + 1)]
    driver = make_driver({"devices": [{"processes": {"compute": processes}}]})
    daemon = start(
        driver,
        f"--path.procfs={procfs(tmp_path / 'proc', count)}",
        "--process.memory",
        "--poll.slow-interval=1s",
        wait_for=1,
    )
    with daemon.watch() as watch:
        wait_until(lambda: watch.scrapes and watch.scrapes[-1].page.rows(WORKLOADS))
        # The first tick has no interval yet.
        observed = wait_until(lambda: _observed_seconds(watch.scrapes[-1].page))
        wait_until(lambda: (_observed_seconds(watch.scrapes[-1].page) or 0.0) > observed + 3)
        last = wait_until(lambda: _if_up(watch.scrapes[-1].page), what="no reading that is late")
    assert len(last.rows(WORKLOADS)) == 128
    assert last.value("gpu_processes", gpu="0", type="compute") == count
    dropped = "roofline_exporter_series_dropped_total"
    assert last.value(dropped, family="gpu_workload_info") > 0
    assert last.value(dropped, family="gpu_process_memory_bytes") > 0
    for path in ("/metrics", "/metrics/dcgm", "/api/v1/gpus", "/", "/gpu/0"):
        answer = daemon.get(path)
        assert answer.status == 200
        assert len(answer.body) < 400_000
    assert memory_mb(daemon.pid, "VmHWM") < MOST_MB
    assert not daemon.lines("hung")


def _if_up(page: Page) -> Page | None:
    """A busy machine may make a reading late."""
    return page if page.value("gpu_up", gpu="0") == 1 else None


def _observed_seconds(page: Page) -> float | None:
    return page.get("gpu_observed_seconds_total", gpu="0", reading="utilization")
