# SPDX-License-Identifier: Apache-2.0
"""What docs/remote.md configures sends a node's series on, under its labels."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.conftest import require_tool
from tests.deploy.remote import CONFIGURATIONS
from tests.e2e.conftest import MakeDriver, StartDaemon, StartPrometheus
from tests.e2e.daemons import Page
from tests.e2e.processes import Process, environment
from tests.rules.promtool import version
from tests.serving import answer_of
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
DEMO_GPUS = 8
DRIVERS_COUNTERS = {
    *("gpu_energy_joules_total", "gpu_ecc_errors_total"),
    *("gpu_pcie_replays_total", "gpu_nvlink_errors_total"),
}
Agent = Callable[[Path, Path, str], list[str]]


def _prometheus_agent(config: Path, data: Path, url: str) -> list[str]:
    text = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump(text | {"remote_write": [{"url": url}]}))
    program = require_tool("prometheus")
    return [
        program,
        "--agent" if version(program) >= (3,) else "--enable-feature=agent",
        f"--config.file={config}",
        f"--storage.agent.path={data}",
        "--web.listen-address=127.0.0.1:0",
    ]


def _vmagent(config: Path, data: Path, url: str) -> list[str]:
    return [
        require_tool("vmagent"),
        f"-promscrape.config={config}",
        f"-remoteWrite.url={url}",
        f"-remoteWrite.tmpDataPath={data}",
        "-httpListenAddr=",
    ]


@pytest.mark.parametrize(
    ("name", "agent"),
    [("prometheus-agent.yml", _prometheus_agent), ("vmagent.yml", _vmagent)],
    ids=["prometheus", "vmagent"],
)
def test_an_agent_sends_on_what_it_scrapes(
    name: str,
    agent: Agent,
    start: StartDaemon,
    start_prometheus: StartPrometheus,
    folders: Iterator[Path],
    processes: list[Process],
) -> None:
    """Job, node and cluster are those of the page, and gpu_up is 1 for each GPU."""
    server = start_prometheus(
        config="scrape_configs: []\n", flags=["--web.enable-remote-write-receiver"]
    )
    daemon = start({}, "--demo", wait_for=DEMO_GPUS)
    folder = next(folders)
    folder.mkdir()
    config = folder / name
    text = CONFIGURATIONS[name].replace("19400", str(daemon.port)).replace("15s", "1s")
    config.write_text(text, encoding="utf-8")
    url = f"http://{server.address}/api/v1/write"
    processes.append(Process(agent(config, folder / "data", url), folder))

    labels = 'job="roofline-exporter", instance="gpu-node-7", cluster="berlin"'
    # A scrape may arrive in several requests.
    arrived = f"count(gpu_up{{{labels}}} == 1) == {DEMO_GPUS} and on () up{{{labels}}} == 1"
    wait_until(lambda: server.query(arrived), what=arrived)


def _write(folder: Path, extra: Mapping[str, str]) -> Page:
    """Run the script of the page; what it wrote."""
    env = environment(extra)
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = CONFIGURATIONS["roofline-textfile"]
    subprocess.run(["/bin/sh", "-c", script, "sh", folder], env=env, check=True, timeout=60)
    return Page((folder / "roofline.prom").read_text(encoding="utf-8"))


def test_node_exporter_serves_the_textfile(
    make_driver: MakeDriver, folders: Iterator[Path], processes: list[Process]
) -> None:
    """Without a complaint; only counters that go on from run to run are in it; and a run that
    fails leaves the page as it was."""
    folder = next(folders)
    folder.mkdir()
    driver = make_driver({"devices": [{"product": "h100-sxm", "power": 400}]})
    env = driver.environment()
    first, second = _write(folder, env), _write(folder, env)
    assert {name for name in second.names if name.endswith("_total")} <= DRIVERS_COUNTERS
    energy = "gpu_energy_joules_total"
    assert second.value(energy, gpu="0") > first.value(energy, gpu="0") + 400

    text = (folder / "roofline.prom").read_text(encoding="utf-8")
    exporter = Process(
        [
            require_tool("prometheus-node-exporter"),
            "--web.listen-address=127.0.0.1:0",
            f"--collector.textfile.directory={folder}",
        ],
        next(folders),
    )
    processes.append(exporter)
    address = exporter.find_in_line(r"address=(127\.0\.0\.1:\d+)")[1]
    served = Page(answer_of(f"http://{address}/metrics").decode())
    assert served.value("gpu_up", gpu="0") == 1
    assert served.value("node_textfile_scrape_error") == 0
    assert served.value("node_textfile_mtime_seconds") > 0
    assert exporter.lines("error gathering metrics") == []

    with pytest.raises(subprocess.CalledProcessError):
        _write(folder, {"ROOFLINE_NVML_LIBRARY": str(folder / "missing.so")})
    assert (folder / "roofline.prom").read_text(encoding="utf-8") == text
