# SPDX-License-Identifier: Apache-2.0
"""A job of a real Slurm, from its allocation over its process to its epilog, on /metrics."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import unmet
from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.daemons import Daemon, Page
from tests.e2e.processes import ROOT
from tests.e2e.slurm import USER, Gpu, SlurmCluster
from tests.fake_nvml import FakeNvml
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
GPUS = (
    Gpu("GPU-11111111-2e97-d125-629d-fd4e5734553f", minor=1),
    Gpu("GPU-22222222-2e97-d125-629d-fd4e5734553f", minor=0),
)
"""Slurm's first GPU, /dev/nvidia0, is the driver's GPU 1."""
POLL_SECONDS = 30.0
"""The files are read every 10 s."""
IMPORTS = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
RUN = ("-m", "exporter", "run", "--with-daemon")


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


def _python() -> str:
    """A Python of this version with which the user may import the package: that of the tests, and
    the folder of the clone, may be root's own."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    command = ("-c", "import exporter")
    environ = {**os.environ, "PYTHONPATH": IMPORTS}
    for path in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        with suppress(OSError):
            done = subprocess.run([path, *command], user=USER, env=environ, check=False, cwd="/")
            if done.returncode == 0:
                return path
    return unmet(f"no {version} with which {USER} may import {ROOT / 'exporter'}")


def _home(cluster: SlurmCluster) -> tuple[Path, dict[str, str], FakeNvml]:
    """A folder that any user may write to, the variables of a run there, and its three GPUs."""
    home, nvml = cluster.folder / "home", cluster.folder / "nvml"
    driver = FakeNvml(nvml, {"devices": [{"product": "h100-sxm", "utilization": 50}] * 3})
    for folder in (home, nvml):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    return home, {**driver.environment(), "PYTHONPATH": IMPORTS, "HOME": str(home)}, driver


def _asked_for_processes(driver: FakeNvml) -> int:
    """How often any process asked the driver who is on a GPU."""
    return driver.calls().get("nvmlDeviceGetComputeRunningProcesses_v3", 0)


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


@pytest.mark.slow
def test_an_idle_job_is_notified_and_then_cancelled(
    cluster: SlurmCluster, make_driver: MakeDriver, start: StartDaemon
) -> None:
    """deploy/automation/slurm-reclaim.sh asks the daemon; a job with the comment stays."""
    idle = [{"product": "h100-sxm", "uuid": gpu.uuid, "minor": gpu.minor} for gpu in GPUS]
    driver = make_driver({"devices": [{**each, "utilization": 0} for each in idle]})
    output, notices = cluster.folder / "output", cluster.folder / "notices"
    output.touch(mode=0o666)
    output.chmod(0o666)
    kept = cluster.batch(output, "--comment=keep-idle-gpus")
    job = cluster.batch(output)
    flags = (f"--slurm.gpustat={cluster.gpustat}", f"--slurm.job-map={cluster.job_map}")
    daemon = start(driver, *flags, "--poll.slow-interval=1s", wait_for=2)
    programs = cluster.folder / "bin"
    programs.mkdir()
    ask = programs / "roofline-exporter"
    url = f"--url=http://127.0.0.1:{daemon.port}"
    ask.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m exporter "$@" {url}\n')
    ask.chmod(0o755)

    def reclaim(window: str) -> str:
        path = f"{programs}:{os.environ['PATH']}"
        more = {"NODE": cluster.node, "NOTICES": str(notices), "IDLE": window, "PATH": path}
        return subprocess.run(
            ["sh", ROOT / "deploy/automation/slurm-reclaim.sh"],
            env={**os.environ, **cluster.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        ).stdout

    wait_until(lambda: f"job {job}:" in reclaim("2s"), POLL_SECONDS, "the job is notified")
    wait_until(lambda: "It is cancelled in 60 minutes" in output.read_text())
    long_ago = (notices / str(job)).stat().st_mtime - 2 * 3600
    os.utime(notices / str(job), (long_ago, long_ago))
    assert f"job {job}: idle: the GPU has been idle for 2 s and longer; cancelled" in reclaim("2s")
    left = cluster.ask("squeue", "--noheader", "--states=RUNNING", "--format=%A").split()
    assert left == [str(kept)]
    assert list(notices.iterdir()) == []


def test_a_step_reports_on_itself_as_an_ordinary_user(cluster: SlurmCluster) -> None:
    """Two tasks have one daemon; its report is in the submit folder when srun returns.

    It has the GPU that Slurm gave, one on which a process of the step is, and no other.
    """
    folder, environ, driver = _home(cluster)
    end = cluster.folder / "end"
    job = f"echo $(id -un) $$; while ! [ -e {end} ]; do sleep 0.1; done; exit $((SLURM_PROCID + 4))"
    step = cluster.step(folder, environ, "--ntasks=2", _python(), *RUN, "sh", "-c", job)
    wait_until(lambda: step.stdout.count(b"\n") == 2, POLL_SECONDS, f"it runs: {step.lines()}")
    users, pids = step.stdout.split()[::2], step.stdout.split()[1::2]
    driver.device(1, processes=[{"pid": int(pids[0]), "bytes": 1 << 30}])
    # Of three GPUs; the process is known after one round, and its step after one more.
    enough = _asked_for_processes(driver) + 4 * 3
    wait_until(lambda: _asked_for_processes(driver) >= enough, POLL_SECONDS, "it is seen")
    end.touch()

    assert step.wait() == 5
    assert users == [USER.encode()] * 2
    (line,) = step.lines("the report is in")
    (report,) = folder.iterdir()
    assert line == f"roofline-exporter: the report is in {report}"
    assert re.fullmatch(rf"roofline-[0-9]+\.0-{cluster.node}\.txt", report.name)
    assert report.owner() == USER
    text = report.read_text(encoding="utf-8")
    assert text.startswith("job   ")
    assert re.findall(r"^(\d) .* (50 %)", text, re.MULTILINE) == [("0", "50 %"), ("1", "50 %")]


def test_a_cancelled_step_has_its_report(cluster: SlurmCluster) -> None:
    """The job has SIGTERM once, and time to end; the report comes after that."""
    folder, environ, _ = _home(cluster)
    loop = "for i in $(seq 10); do sleep 0.1; done"
    job = f"trap 'echo term' TERM; echo $SLURM_JOB_ID; {loop}; echo end"
    step = cluster.step(folder, environ, _python(), *RUN, "sh", "-c", job)
    wait_until(lambda: b"\n" in step.stdout, POLL_SECONDS, f"it runs: {step.lines()}")
    number = int(step.stdout)
    cluster.cancel(number)
    step.wait()

    assert step.stdout.split()[1:] == [b"term", b"end"]
    report = folder / f"roofline-{number}.0-{cluster.node}.txt"
    assert report.read_text(encoding="utf-8").startswith(f"job   {number}.0\n")
