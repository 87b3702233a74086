# SPDX-License-Identifier: Apache-2.0
"""The demo, as a real Prometheus sees two minutes of it."""

from __future__ import annotations

from pathlib import Path

from exporter.sources import simulate
from tests.e2e.conftest import StartPrometheus
from tests.e2e.daemons import Daemon
from tests.e2e.processes import Process
from tests.soak.launcher import CLOCK_VARIABLE, PACE_VARIABLE, PROGRAM
from tests.waiting import wait_until

BUNDLED = Path(simulate.__file__).parent / "scenarios" / "demo.yaml"
EPOCH = 1_800_000_000.0
WATCHED_SECONDS = 120
"""On the demo's clock, of which `PACE` seconds pass in one."""
PACE = 10
SHARE_TOLERANCE = 0.01
GPUS = 8


def _with_an_early_xid(folder: Path) -> Path:
    """The bundled demo, but its failing GPU works for 50 s and is lost for 30, over and over."""
    text = BUNDLED.read_text(encoding="utf-8")
    assert "works: 6m\n    lost: 5m" in text
    scenario = folder / "early.yaml"
    changed = text.replace("works: 6m\n    lost: 5m", "works: 50s\n    lost: 30s")
    scenario.write_text(changed, encoding="utf-8")
    return scenario


def test_prometheus_watches_the_demo(
    processes: list[Process], start_prometheus: StartPrometheus, tmp_path: Path
) -> None:
    """All of it arrives: shares that add up, stories that differ, the increase of an Xid, and since
    when counters count, which Prometheus 2.42 keeps as series beside them."""
    clock = tmp_path / "clock"
    clock.write_text(f"{EPOCH}\n", encoding="utf-8")
    env = {CLOCK_VARIABLE: str(clock), PACE_VARIABLE: str(PACE)}
    flags = ("--demo", f"--demo.scenario={_with_an_early_xid(tmp_path)}", "--metrics.created")
    daemon = Daemon(tmp_path / "daemon", env, flags, PROGRAM)
    processes.append(daemon)
    daemon.wait_for_gpus(GPUS)
    prometheus = start_prometheus(daemon.port, "500ms")

    def rows(expression: str) -> list[tuple[dict[str, str], float]]:
        return [(row["metric"], float(row["value"][1])) for row in prometheus.query(expression)]

    def one(expression: str) -> float:
        [(_, value)] = rows(expression)
        return value

    def by_gpu(expression: str) -> dict[int, float]:
        return {int(labels["gpu"]): value for labels, value in rows(expression)}

    read = 'gpu_last_read_timestamp_seconds{gpu="0"}'
    seen = f"max_over_time({read}[5m]) - min_over_time({read}[5m]) >= {WATCHED_SECONDS}"
    wait_until(lambda: rows(seen), 5 * WATCHED_SECONDS / PACE, "two minutes of the demo")
    # A scrape has 500 ms here, which a busy machine may need for other work.
    assert one("avg_over_time(up[5m])") > 0.9
    assert one('count(gpu_info{source="simulate"})') == GPUS
    xids = by_gpu('sum by (gpu) (increase(gpu_xid_errors_total{xid="79"}[5m]))')
    assert xids.pop(7) >= 1
    assert set(xids.values()) == {0}
    assert one('min_over_time(gpu_up{gpu="7"}[5m])') == 0
    observed = 'sum by (gpu) (rate(gpu_observed_seconds_total{reading="activity"}[5m]))'
    shares = by_gpu(f"sum by (gpu) (rate(gpu_time_seconds_total[5m])) / {observed}")
    assert len(shares) == GPUS
    assert all(abs(share - 1) <= SHARE_TOLERANCE for share in shares.values())
    limiters = {
        labels["gpu"]: labels["limiter"]
        for labels, _ in rows("topk by (gpu) (1, rate(gpu_limited_seconds_total[5m]))")
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
    held = by_gpu(f"sum by (gpu) (rate(gpu_held_idle_seconds_total[5m])) / {observed}")
    assert held[4] > 0.99
    assert held[5] == 0
    created = by_gpu("max_over_time(gpu_idle_seconds_created[5m])")
    assert len(created) == GPUS
    assert all(0 <= began - EPOCH < WATCHED_SECONDS for began in created.values())
    assert rows("gpu_idle_seconds_created unless on (gpu) gpu_idle_seconds_total") == []
    assert rows("gpu_energy_joules_created") == []
