# SPDX-License-Identifier: Apache-2.0
"""What a real Prometheus makes of the page, compared with what the driver was scripted to do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import MakeDriver, StartDaemon, StartPrometheus
from tests.e2e.daemons import Daemon, Page
from tests.e2e.processes import retry_once
from tests.e2e.prometheus import PrometheusServer
from tests.fake_nvml import mean, sine, square
from tests.waiting import wait_until

# What this Prometheus (2.42) asks for by itself.
PROMETHEUS_ACCEPT = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
WINDOW_SECONDS = 60

ENERGY_TOLERANCE = 0.04
"""Relative: a counter is up to one poll older at one end of the window than at the other (1.7 %),
the window holds no whole number of periods (1.1 %), and a busy machine polls late."""
DUTY_TOLERANCE = 0.02
"""Absolute: two points."""
SUM_TOLERANCE = 0.01
MISSED_RATIO = 0.1
"""Of the time that a busy machine may leave unobserved."""
POLL_RATIO = 1.0 / WINDOW_SECONDS
"""What the window holds more where the counter was one poll old at its start."""

# No period divides or is a multiple of the poll (1 s), of the driver's sampling period (1/6 s) or
# of the scrape interval (15 s), and a whole window holds many periods.
POWERS = (
    square(period=1.7, duty=0.3, high=650, low=120),
    sine(period=2.3, mean=400, amplitude=250),
    square(period=0.37, duty=0.6, high=70, low=12),
    sine(period=3.1, mean=230, amplitude=170),
)
DUTIES = (
    square(period=0.83, duty=0.35, high=100),
    square(period=2.1, duty=0.8, high=100, phase=0.4),
    square(period=0.31, duty=0.55, high=100),
    square(period=1.3, duty=0.25, high=100, phase=0.9),
)
MEASURED_GPUS = (0, 1)


def _activity(duty: dict[str, Any]) -> dict[str, Any]:
    """A kernel that runs for the duty and keeps parts of the GPU busy."""
    body = duty["square"]

    def at(percent: float) -> dict[str, Any]:
        return {"square": {**body, "high": percent}}

    return {
        "graphics": at(100),
        "sm": at(90),
        "occupancy": at(40),
        "tensor": at(60),
        "hmma": at(60),
        "dram": at(35),
        "fp64": 0,
        "fp32": at(12),
        "fp16": at(5),
        "int": at(8),
    }


def _devices() -> list[dict[str, Any]]:
    """Two GPUs with hardware counters, one without, and one without the sample buffer either."""
    special: list[dict[str, Any]] = [
        {"product": "h100-sxm", "gpm": {**_activity(DUTIES[0]), "cumulative": True}},
        {"product": "h100-sxm", "gpm": _activity(DUTIES[1])},
        {"product": "t4"},
        {"product": "a100-sxm4-80gb", "samples": {"enabled": False}},
    ]
    return [
        {**device, "power": power, "utilization": duty}
        for device, power, duty in zip(special, POWERS, DUTIES, strict=True)
    ]


def _wait_for_scrapes(server: PrometheusServer, count: int) -> list[float]:
    """Return the times of the first scrapes, oldest first."""

    def times() -> list[float] | None:
        found = [float(at) for row in server.query("up[5m]") for at, _ in row["values"]]
        return found if len(found) >= count else None

    return wait_until(times, count * 15 + 15, f"{count} scrapes")


@pytest.mark.slow
@retry_once
def test_prometheus_computes_what_the_driver_was_scripted_to_do(
    make_driver: MakeDriver, start: StartDaemon, start_prometheus: StartPrometheus
) -> None:
    """Energy, duty cycle and time parts over 60 s at a 15 s scrape interval are the script's."""
    daemon = start(make_driver({"devices": _devices()}), wait_for=len(POWERS))
    server = start_prometheus(daemon.port, "15s")
    end = _wait_for_scrapes(server, WINDOW_SECONDS // 15 + 1)[-1]

    assert [row["value"][1] for row in server.query("min_over_time(up[2m])", end)] == ["1"]
    _check_sample_count(server, daemon, end)
    _check_no_counter_fell(server, end)

    watts = server.by_gpu("rate(gpu_energy_joules_total[60s])", end)
    assert watts.keys() == {0, 1, 2, 3}
    for gpu, power in enumerate(POWERS):
        scripted = mean(power, 0, _period(power))
        assert abs(watts[gpu] / scripted - 1) <= ENERGY_TOLERANCE, (gpu, watts[gpu], scripted)

    duties = server.by_gpu(
        "rate(gpu_busy_seconds_total[60s]) / ignoring(reading)"
        ' rate(gpu_observed_seconds_total{reading="utilization"}[60s])',
        end,
    )
    assert duties.keys() == {0, 1, 2, 3}
    for gpu, duty in enumerate(DUTIES):
        scripted = duty["square"]["duty"]
        assert abs(duties[gpu] - scripted) <= DUTY_TOLERANCE, (gpu, duties[gpu], scripted)

    # Per second of wall time, and per second that was observed.
    for share in (
        "sum by (gpu) (rate(gpu_time_seconds_total[60s]))",
        "sum by (gpu) (rate(gpu_time_seconds_total[60s])) / sum by (gpu)"
        ' (rate(gpu_observed_seconds_total{reading="activity"}[60s]))',
        "sum by (gpu) (rate(gpu_limited_seconds_total[60s]))",
        "sum by (gpu) (rate(gpu_limited_seconds_total[60s])) / sum by (gpu)"
        ' (rate(gpu_observed_seconds_total{reading="utilization"}[60s]))',
    ):
        sums = server.by_gpu(share, end)
        measured_only = "gpu_time_seconds_total" in share
        assert sums.keys() == (set(MEASURED_GPUS) if measured_only else {0, 1, 2, 3})
        for gpu, total in sums.items():
            of_wall_time = "gpu_observed_seconds_total" not in share
            most = 1 + SUM_TOLERANCE + of_wall_time * POLL_RATIO
            least = 1 - SUM_TOLERANCE - of_wall_time * MISSED_RATIO
            assert least <= total <= most, (share, gpu, total)

    # The parts themselves: idle while no kernel runs, then 60 % tensor within 90 % of the SMs.
    for part, share_of_duty in {"narrow": 0.1, "unsaturated": 0.3}.items():
        parts = server.by_gpu(
            f'sum by (gpu) (rate(gpu_time_seconds_total{{part="{part}"}}[60s]))'
            " / sum by (gpu) (rate(gpu_time_seconds_total[60s]))",
            end,
        )
        for gpu in MEASURED_GPUS:
            scripted = DUTIES[gpu]["square"]["duty"] * share_of_duty
            assert abs(parts[gpu] - scripted) <= DUTY_TOLERANCE, (part, gpu, parts[gpu], scripted)


def _period(wave: dict[str, Any]) -> float:
    (body,) = wave.values()
    return float(body["period"])


def _check_sample_count(server: PrometheusServer, daemon: Daemon, end: float) -> None:
    """Prometheus took every sample of the page in the format that it asked for."""
    answer = daemon.get("/metrics", {"Accept": PROMETHEUS_ACCEPT})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    on_page = len(Page(answer.text).samples)
    for name in ("scrape_samples_scraped", "scrape_samples_post_metric_relabeling"):
        (row,) = server.query(name, end)
        assert int(row["value"][1]) == on_page, name
    (added,) = server.query("scrape_series_added", end)
    assert added["value"][1] == "0", "series came and went on an undisturbed node"


def _check_no_counter_fell(server: PrometheusServer, end: float) -> None:
    rows = server.query('{__name__=~".+_total"}[2m]', end)
    assert len(rows) > 100
    for row in rows:
        values = [float(value) for _, value in row["values"]]
        assert values == sorted(values), row["metric"]
