# SPDX-License-Identifier: Apache-2.0
"""What Prometheus makes of pages of the exporter: of a scripted GPU, and of the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fake_nvml import mean, sine, square
from tests.rules.promtool import MINUTE, Expected, check
from tests.rules.scrapes import Node, of_demo

NAMES = {
    *("gpu_busy_seconds_total", "gpu_energy_joules_total", "gpu_observed_seconds_total"),
    *("gpu_limited_seconds_total", "gpu_time_seconds_total", "gpu_held_idle_seconds_total"),
    *("gpu_info", "gpu_up", "gpu_xid_errors_total"),
}
OBSERVED = 'sum by (gpu) (rate(gpu_observed_seconds_total{{reading="{}"}}[5m]))'
PARTS = "sum by (gpu) (rate(gpu_time_seconds_total{}[5m]))"
LIMITED = "sum by (gpu) (rate(gpu_limited_seconds_total[5m]))"
WAVES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "h100-sxm": (square(1.7, 0.3, 650, 120), square(0.83, 0.35, 100)),
    "t4": (sine(2.3, 50, 20), square(2.1, 0.8, 100, phase=0.4)),
}
"""Power and duty: no period divides a poll or the driver's sampling period of 1/6 s."""


def _activity(duty: dict[str, Any]) -> dict[str, Any]:
    """A kernel that runs for the duty and keeps parts of the GPU busy."""
    units = {"graphics": 100, "sm": 90, "tensor": 60, "hmma": 60, "dram": 35, "fp32": 12}
    return {name: {"square": {**duty["square"], "high": high}} for name, high in units.items()}


@pytest.mark.parametrize("product", WAVES)
def test_rates_are_what_the_driver_was_scripted_to_do(
    product: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Energy, duty cycle, and time parts, which add up to the observed time, as limiters do."""
    power, duty = WAVES[product]
    counted = product != "t4"
    gpm = _activity(duty) if counted else {"supported": 0}
    device = {"product": product, "power": power, "utilization": duty, "gpm": gpm}
    node = Node(tmp_path, monkeypatch, NAMES, **device)
    node.run(13)
    busy = duty["square"]["duty"]
    wanted = {
        "rate(gpu_energy_joules_total[5m])": (mean(power, 0, 1e4), 0.02),
        f"sum by (gpu) (rate(gpu_busy_seconds_total[5m])) / {OBSERVED.format('utilization')}": (
            busy,
            0.02,
        ),
        f"{LIMITED} / {OBSERVED.format('utilization')}": (1, 0.01),
    }
    if counted:
        wanted[f"{PARTS.format('')} / {OBSERVED.format('activity')}"] = (1, 0.01)
        # Idle while no kernel runs, then 60 % tensor within 90 % of the SMs.
        for part, share in (("narrow", 0.1), ("unsaturated", 0.3)):
            of_part = PARTS.format(f'{{part="{part}"}}')
            wanted[f"{of_part} / {PARTS.format('')}"] = (busy * share, 0.05)
    expected = [
        Expected(f"abs(sum({text}) / {value} - 1) < bool {to}", node.scrapes.end, [("{}", 1)])
        for text, (value, to) in wanted.items()
    ]
    check(tmp_path, [], node.scrapes.series(), expected)


def test_the_demo_tells_its_stories(tmp_path: Path) -> None:
    """Shares that add up, limiters that differ, who is held idle, and the Xid of the lost GPU."""
    scrapes, _ = of_demo(NAMES, 10 * MINUTE)
    stories = ("compute", "memory", "input", "latency", "idle", "idle", "clock", "compute")
    before = 5.5 * MINUTE
    longest = "topk by (gpu) (1, rate(gpu_limited_seconds_total[5m]))"
    held = "sum by (gpu) (rate(gpu_held_idle_seconds_total[5m]))"
    activity = OBSERVED.format("activity")
    expected = [
        Expected('count(gpu_info{source="simulate"})', before, [("{}", 8)]),
        Expected(f"max(abs({PARTS.format('')} / {activity} - 1)) < bool 0.01", before, [("{}", 1)]),
        Expected(
            f"count by (gpu, limiter) ({longest})",
            before,
            [(f'{{gpu="{gpu}", limiter="{name}"}}', 1) for gpu, name in enumerate(stories)],
        ),
        Expected(f"count by (gpu) ({held} / {activity} > 0.99)", before, [('{gpu="4"}', 1)]),
        Expected('sum(rate(gpu_held_idle_seconds_total{gpu="5"}[5m]))', before, [("{}", 0)]),
        Expected('sum(min_over_time(gpu_up{gpu="7"}[5m]))', scrapes.end, [("{}", 0)]),
        Expected(
            'sum by (gpu) (increase(gpu_xid_errors_total{xid="79"}[9m])) > bool 0',
            scrapes.end,
            [(f'{{gpu="{gpu}"}}', float(gpu == 7)) for gpu in range(8)],
        ),
    ]
    check(tmp_path, [], scrapes.series(), expected)
