# SPDX-License-Identifier: Apache-2.0
"""A job of a real Slurm, from its allocation over its process to its epilog, on /metrics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.daemons import Daemon, Page
from tests.e2e.slurm import USER, Gpu, SlurmCluster
from tests.waiting import wait_until

GPUS = (
    Gpu("GPU-11111111-2e97-d125-629d-fd4e5734553f", minor=1),
    Gpu("GPU-22222222-2e97-d125-629d-fd4e5734553f", minor=0),
)
"""Slurm's first GPU, /dev/nvidia0, is the driver's GPU 1."""


@pytest.fixture
def cluster() -> Iterator[SlurmCluster]:
    """A running cluster of one node."""
    made = SlurmCluster(GPUS)
    try:
        made.start()
        yield made
    finally:
        print(made.said())
        made.stop()


def workloads(page: Page) -> dict[str, dict[str, str]]:
    """What is known of the one workload of each GPU that has one, by the GPU's index."""
    found: dict[str, dict[str, str]] = {}
    for labels, _ in page.rows("gpu_workload_info"):
        assert labels["gpu"] not in found
        found[labels["gpu"]] = {
            name.removeprefix("workload_"): value
            for name, value in labels.items()
            if (name.startswith("workload_") or name == "scheduler") and value
        }
    return found


def allocated(page: Page) -> dict[str, float]:
    """gpu_allocated of each GPU."""
    return {labels["gpu"]: value for labels, value in page.rows("gpu_allocated")}


def unopened(page: Page) -> float:
    """For how long GPU 1 was given away and not opened."""
    return page.value("gpu_allocated_unopened_seconds_total", gpu="1")


def wait_for_workloads(daemon: Daemon, wanted: dict[str, dict[str, str]]) -> Page:
    """Wait for a page that shows these workloads and no other."""
    return daemon.page_when(lambda page: workloads(page) == wanted, f"workloads {wanted}")


def test_a_job_from_its_prolog_to_its_epilog(
    cluster: SlurmCluster, make_driver: MakeDriver, start: StartDaemon
) -> None:
    """It is on GPU 1 and nowhere else: first without a process, then with one, then not at all."""
    driver = make_driver(
        {"devices": [{"product": "h100-sxm", "uuid": gpu.uuid, "minor": gpu.minor} for gpu in GPUS]}
    )
    job = cluster.allocate()
    given = {"scheduler": "slurm", "job": str(job), "user": USER}

    daemon = start(
        driver,
        f"--slurm.gpustat={cluster.gpustat}",
        f"--slurm.job-map={cluster.job_map}",
        "--poll.slow-interval=1s",
        wait_for=2,
    )
    page = wait_for_workloads(daemon, {"1": given})
    assert allocated(page) == {"0": 0, "1": 1}
    assert page.value("roofline_exporter_source_up", source="slurm") == 1
    before = unopened(page)
    wait_until(lambda: unopened(daemon.metrics()) > before, what="the time without a process grows")

    pid = cluster.run(job)
    driver.device(1, processes=[{"pid": pid, "bytes": 1 << 30}])
    page = wait_for_workloads(daemon, {"1": {**given, "step": "0"}})
    assert allocated(page) == {"0": 0, "1": 1}
    opened = unopened(daemon.metrics())

    driver.device(1, processes=[])
    cluster.cancel(job)
    page = wait_for_workloads(daemon, {})
    assert allocated(page) == {"0": 0, "1": 0}
    assert unopened(page) >= opened
    assert [file.name for file in cluster.gpustat.iterdir()] == [".lock"]
    assert list(cluster.job_map.iterdir()) == []
