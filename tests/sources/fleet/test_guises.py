# SPDX-License-Identifier: Apache-2.0
"""Which alerts GPUs raise whose drivers answer otherwise than a data-centre board's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.publisher import Publisher, Rules
from exporter.sources.fleet.session import SessionOptions
from exporter.specs import load_specs
from tests.dashboards.models import METRIC
from tests.fake_nvml import square
from tests.rules.promtool import HOUR, STEP_SECONDS, Expected, check, selector
from tests.rules.rules import RULES, RULES_BY_GROUP
from tests.rules.scrapes import Scrapes
from tests.sources.conftest import Open
from tests.sources.fleet.test_published import Node

GIB = 2**30
WATCHED_SECONDS = 1.25 * HOUR
"""Longer than any alert waits."""
POLL_SECONDS = float(STEP_SECONDS)
SPECS = load_specs()
GUISES: dict[str, dict[str, Any]] = {
    "rtx-3090": {},
    "rtx-4090-laptop": {"clock_event_reasons": 1, "processes": {"graphics": [{"pid": 1}]}},
    "t4": {"temperature": {"memory": 0}},
    "l40s": {"temperature": {"memory": 0}},
    "a10": {},
    "a100-pcie-40gb": {},
    "gb10": {"power": 40},
    "gh200": {"memory": {"used": 20 * GIB}},
    "jetson-thor": {},
    "b300": {
        "power": square(period=2, duty=0.5, high=717, low=283),
        "power_limits": {"enforced": 500, "management": 500},
        "clock_event_reasons": 4,
    },
}
WORK: dict[str, Any] = {
    "utilization": 90,
    "memory_utilization": 40,
    "gpm": {"graphics": 90, "sm": 80, "tensor": 50, "dram": 40, "fp32": 5},
    "processes": [{"pid": 1, "bytes": GIB}],
}
OF_GPUS = {
    rule["alert"]
    for kind in ("idle", "job", "hardware", "link")
    for rule in RULES_BY_GROUP[f"roofline-{kind}-alerts"]
}
READ = {name for rule in RULES for name in METRIC.findall(rule["expr"])}


def pages_of(rig: Any, options: SessionOptions, instance: str) -> Scrapes:
    """What a Prometheus scrapes of the GPU."""
    node, pages = Node(rig, POLL_SECONDS, options=options), Pages(RenderOptions())
    rules = Rules(interval_seconds=POLL_SECONDS)
    node.publisher = Publisher(node, SPECS, rules, rig, (pages.publish,))
    scrapes = Scrapes(instance, READ)
    while scrapes.end < WATCHED_SECONDS:
        node.tick()
        scrapes.add(pages.page("text-0.0.4", zipped=False))
    return scrapes


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.slow
def test_alerts(open_gpu: Open, tmp_path: Path, *, busy: bool) -> None:
    """At work, or without any process, none is raised by what a driver answers."""
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "meminfo").write_text(f"MemTotal: {120 * 2**20} kB\nMemAvailable: {60 * 2**20} kB\n")
    options = SessionOptions(procfs=str(proc))
    work = WORK if busy else {}
    scraped = {
        product: pages_of(open_gpu(product=product, **(work | own)), options, product)
        for product, own in GUISES.items()
    }

    query = 'ALERTS{alertstate="firing"}'
    raised = [(selector("", {"alertname": "GpuPowerLimitLowered", "instance": "b300"}), 1.0)]
    series = [one for scrapes in scraped.values() for one in scrapes.series()]
    firing = Expected(f"count by (alertname, instance) ({query})", scraped["t4"].end, raised)
    check(tmp_path, OF_GPUS, series, [firing])
