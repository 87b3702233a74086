# SPDX-License-Identifier: Apache-2.0
"""The demo, as a real Prometheus sees it for two minutes."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from exporter.sources import simulate
from tests.conftest import require_tool
from tests.e2e.conftest import RunCommand, StartDaemon, StartPrometheus
from tests.e2e.processes import retry_once
from tests.waiting import wait_until

BUNDLED = Path(simulate.__file__).parent / "scenarios" / "demo.yaml"
WATCH_SECONDS = 120
SHARE_TOLERANCE = 0.01
GPUS = 8


def _with_an_early_xid(folder: Path) -> Path:
    """The bundled demo, but its failing GPU fails after 50 s and is lost for 30."""
    text = BUNDLED.read_text(encoding="utf-8")
    assert "works: 6m\n    lost: 5m" in text
    scenario = folder / "early.yaml"
    changed = text.replace("works: 6m\n    lost: 5m", "works: 50s\n    lost: 30s")
    scenario.write_text(changed, encoding="utf-8")
    return scenario


@retry_once
def test_prometheus_watches_the_demo(
    start: StartDaemon, start_prometheus: StartPrometheus, tmp_path: Path
) -> None:
    """All of it arrives: shares that add up, stories that differ, and the first Xid's increase."""
    folder = tmp_path / f"scenario-{time.monotonic_ns()}"
    folder.mkdir()
    daemon = start({}, "--demo", f"--demo.scenario={_with_an_early_xid(folder)}", wait_for=GPUS)
    prometheus = start_prometheus(daemon, "5s")
    time.sleep(WATCH_SECONDS)
    now = time.time()

    def one(expression: str) -> float:
        [row] = prometheus.query(expression, now)
        return float(row["value"][1])

    assert one("min_over_time(up[110s])") == 1
    assert one('count(gpu_info{source="simulate"})') == GPUS
    xids = prometheus.by_gpu('sum by (gpu) (increase(gpu_xid_errors_total{xid="79"}[110s]))', now)
    assert xids.pop(7) >= 1
    assert set(xids.values()) == {0}
    assert one('min_over_time(gpu_up{gpu="7"}[110s])') == 0
    shares = prometheus.by_gpu(
        "sum by (gpu) (rate(gpu_time_seconds_total[60s]))"
        ' / sum by (gpu) (rate(gpu_observed_seconds_total{reading="activity"}[60s]))',
        now,
    )
    assert len(shares) == GPUS
    assert all(abs(share - 1) <= SHARE_TOLERANCE for share in shares.values())
    limiters = {
        row["metric"]["gpu"]: row["metric"]["limiter"]
        for row in prometheus.query("topk by (gpu) (1, rate(gpu_limited_seconds_total[60s]))", now)
    }
    assert limiters == {
        "0": "compute",
        "1": "memory",
        "2": "input",
        "3": "latency",
        "4": "idle",
        "5": "idle",
        "6": "clock",
        "7": "compute",
    }
    held = prometheus.by_gpu("rate(gpu_held_idle_seconds_total[60s])", now)
    assert held[4] > 0.99
    assert held[5] == 0


def test_promtool_finds_nothing_in_the_demos_page(start: StartDaemon) -> None:
    """Names, units and HELP are as Prometheus wants them, with every family of the demo."""
    promtool = require_tool("promtool")
    daemon = start({}, "--demo", wait_for=GPUS)
    answer = daemon.get("/metrics")
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=answer.body, capture_output=True, check=False
    )

    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_status_beside_a_demo(start: StartDaemon, command: RunCommand) -> None:
    """One line a GPU, and no doubt that they are not real."""
    daemon = start({}, "--demo", wait_for=GPUS)
    url = f"http://127.0.0.1:{daemon.port}"
    wait_until(lambda: daemon.get("/api/v1/gpus").status == 200, 10, "the API")
    status = command({}, "status", "--url", url)

    assert status.wait() == 0
    text = status.stdout_path.read_text(encoding="utf-8")
    assert text.count("H100 80GB HBM3") == GPUS
    assert "simulate" in text


def test_once_shows_the_demo(command: RunCommand) -> None:
    """A page without a daemon, a driver or a GPU."""
    once = command({}, "once", "--demo")

    assert once.wait() == 0
    assert "gpu_saturation_ratio{" in once.stdout_path.read_text(encoding="utf-8")
