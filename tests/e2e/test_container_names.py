# SPDX-License-Identifier: Apache-2.0
"""Whose container is on a GPU: real Docker and real Podman, on a scripted driver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import require_tool
from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.containers import Engine, base_image
from tests.e2e.daemons import Daemon, Page
from tests.e2e.processes import ROOT
from tests.e2e.runtimes import Waiting, in_docker, in_podman, program
from tests.fake_nvml import FakeNvml
from tests.waiting import wait_until

Row = dict[str, str]
WORKLOAD = ("scheduler", "workload_container", "workload_id")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """This machine's Docker engine."""
    found = Engine()
    yield found
    found.client.close()


@pytest.fixture(scope="module")
def waiting(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Waiting]]:
    """A container of each engine, for all tests here."""
    podman = require_tool("podman")
    archive = program(tmp_path_factory.mktemp("image"))
    with in_docker(engine, archive) as one, in_podman(podman, archive) as other:
        yield {"docker": one, "podman": other}


@pytest.fixture
def driver(make_driver: MakeDriver, waiting: dict[str, Waiting]) -> FakeNvml:
    """GPU 0 has Docker's process and one of no container, GPU 1 Podman's, GPU 2 none."""

    def gpu(*pids: int) -> dict[str, Any]:
        return {"processes": [{"pid": pid, "bytes": 1 << 30, "sm": 40} for pid in pids]}

    docker, podman = waiting["docker"].pid, waiting["podman"].pid
    return make_driver({"devices": [gpu(docker, os.getpid()), gpu(podman), gpu()]})


def workloads(page: Page) -> list[tuple[str, ...]]:
    """GPU, scheduler, name and id of every workload."""
    rows = [labels for labels, _ in page.rows("gpu_workload_info")]
    return sorted((row["gpu"], *(row[name] for name in WORKLOAD)) for row in rows)


def wait_for(daemon: Daemon, wanted: list[tuple[str, ...]]) -> Page:
    """The first page with these workloads."""
    return daemon.page_when(lambda page: workloads(page) == wanted, f"workloads {wanted}")


def test_containers_have_names_where_their_engines_can_be_asked(
    driver: FakeNvml, start: StartDaemon, waiting: dict[str, Waiting]
) -> None:
    """Both engines at once, each container on its GPU only; and the SM time adds up by name."""
    docker, podman = waiting["docker"], waiting["podman"]
    daemon = start(
        driver,
        f"--container.sockets={docker.socket},{podman.socket}",
        "--process.utilization",
        "--poll.slow-interval=1s",
        wait_for=3,
    )
    page = wait_for(
        daemon,
        [
            ("0", "container", docker.name, docker.id),
            ("1", "container", podman.name, podman.id),
        ],
    )
    assert page.value("roofline_exporter_source_up", source="container") == 1
    assert page.rows("gpu_allocated") == []

    def utilization() -> dict[str, float]:
        rows = daemon.metrics().rows("gpu_process_sm_utilization_ratio")
        return {row["workload_container"]: ratio for row, ratio in rows if row["pid"]}

    expected = {docker.name: 0.4, podman.name: 0.4, "": 0.4}
    assert wait_until(lambda: (found := utilization()) == expected and found) == expected


@pytest.mark.parametrize("namespace", ["host", "private"])
def test_a_container_sees_the_ids_of_others(
    engine: Engine, waiting: dict[str, Waiting], namespace: str
) -> None:
    """With the host's process ids, whatever namespace of control groups it is in."""
    script = (
        "import sys; from exporter.sources.proc.cgroup import of_process\n"
        "print(*(of_process('/proc', int(pid)).container_id for pid in sys.argv[1:]))"
    )
    pids = [str(each.pid) for each in waiting.values()]
    said = engine.client.containers.run(
        engine.require(base_image()),
        ["python3", "-c", script, *pids],
        volumes={str(ROOT / "exporter"): {"bind": "/opt/exporter", "mode": "ro"}},
        working_dir="/opt",
        environment={"PYTHONDONTWRITEBYTECODE": "1"},
        network_mode="none",
        pid_mode="host",
        cgroupns=namespace,
        remove=True,
    )
    assert said.decode().split() == [each.id for each in waiting.values()]
