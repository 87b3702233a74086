# SPDX-License-Identifier: Apache-2.0
"""Alerts on pages of the exporter, from what a GPU or a job does to what fires."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.model.snapshot import Snapshot
from tests.fake_nvml import square
from tests.publisher.starving import Starving
from tests.rules.promtool import (
    MINUTE,
    STEP_SECONDS,
    Expected,
    Series,
    Value,
    check,
    piecewise,
    selector,
    total,
)
from tests.rules.rules import RULES, RULES_BY_GROUP
from tests.rules.scrapes import POLL_SECONDS, Node, Scrapes, of_demo
from tests.snapshots import EXAMPLES

NAMES = frozenset(
    name for rule in RULES for name in re.findall(r"\b(?:gpu|roofline_exporter)_\w+", rule["expr"])
)
STUCK = {"graphics": 0, "sm": 0, "tensor": 0, "dram": 0}
FOR_SECONDS = 45 * 60


def load(on: float, off: float) -> dict[str, Any]:
    """A job that works for a while and then pauses, for ever."""
    duty = on / (on + off)
    return {
        "utilization": square(on + off, duty, 100, phase=0.3),
        "power": square(on + off, duty, 500, 115, phase=0.3),
    }


@pytest.mark.parametrize(
    ("doing", "fires"),
    [
        pytest.param(load(2, 1), False, marks=pytest.mark.slow, id="2 s of 3"),
        pytest.param(load(0.5, 4.5), False, id="0.5 s of 5"),
        pytest.param({"utilization": 0, "power": 115}, True, id="at rest"),
    ],
)
def test_a_job_whose_counters_stand_still_is_not_held_idle(
    doing: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fires: bool
) -> None:
    job = {"pid": 1, "bytes": 2**30}
    node = Node(tmp_path, monkeypatch, NAMES, gpm=STUCK, processes=[job], **doing)
    node.run(FOR_SECONDS // STEP_SECONDS)
    alerts = 'ALERTS{alertname="GpuHeldIdle", alertstate="firing", severity="warning"}'
    query = f"count(last_over_time({alerts}[{FOR_SECONDS}s]))"
    rows = [("{}", 1.0)] if fires else []
    check(
        tmp_path, ["GpuHeldIdle"], node.scrapes.series(), [Expected(query, node.scrapes.end, rows)]
    )


def scraped(snapshots: Iterable[Snapshot]) -> Scrapes:
    """What is scraped of a node that publishes one snapshot after the other."""
    pages, scrapes = Pages(RenderOptions()), Scrapes("node-1:19400", NAMES)
    for snapshot in snapshots:
        pages.publish(snapshot)
        scrapes.add(pages.page("text-0.0.4", zipped=False))
    return scrapes


@pytest.mark.parametrize(
    ("wait", "compute"),
    [(5, 15), (300, 300), *(pytest.param(each, each, marks=pytest.mark.slow) for each in (15, 60))],
)
def test_a_starving_job_raises_its_alert(wait: float, compute: float, tmp_path: Path) -> None:
    """Through client, ledger, publisher, page and rules; the GPU idles exactly while it waits."""
    with Starving(poll_seconds=POLL_SECONDS) as job:
        job.train([(wait, compute)] * int(45 * MINUTE / (wait + compute)))
    scrapes = scraped(job.seen[:: STEP_SECONDS // POLL_SECONDS])
    firing = 'sum by (gpu) (ALERTS{alertname="GpuDataStallHigh", alertstate="firing"})'
    late = [
        Expected(firing, scrapes.end - before, [('{gpu="0"}', 1)])
        for before in (5 * MINUTE, MINUTE)
    ]
    check(tmp_path, ["GpuDataStallHigh"], scrapes.series(), late)


def test_the_lost_gpu_of_the_demo_raises_its_alert(tmp_path: Path) -> None:
    """Its GPU 7, and no other, while it is lost: by the Xid with which it was lost, once."""
    scrapes, _ = of_demo(NAMES, 15 * MINUTE)
    (up,) = (
        one for one in scrapes.series() if (one.name, one.labels.get("gpu")) == ("gpu_up", "7")
    )
    times = [step * float(STEP_SECONDS) for step in range(int(scrapes.end // STEP_SECONDS) + 1)]
    lost = [at for at in times if up.value(at) == 0]
    for alerts, first in (
        (["GpuLost"], []),
        (["GpuXidCritical", "GpuLost"], [{"alertname": "GpuXidCritical", "xid": "79"}]),
    ):
        last = first or [{"alertname": "GpuLost"}]
        critical = {"alertstate": "firing", "severity": "critical", **up.labels}
        firing, then = (
            [(selector("ALERTS", dict(sorted({**critical, **each}.items()))), 1.0) for each in some]
            for some in (first, last)
        )
        query = 'ALERTS{alertname=~"GpuLost|GpuXidCritical", alertstate="firing"}'
        expected = [Expected(query, lost[0], firing), Expected(query, lost[-1], then)]
        check(tmp_path, alerts, scrapes.series(), expected)


OF_A_BOARD = {
    rule["alert"]
    for group in ("roofline-hardware-alerts", "roofline-link-alerts")
    for rule in RULES_BY_GROUP[group]
}
SCRAPES = 61
FALLS = 5 * MINUTE
FAULTS: Mapping[str, Value] = {
    "gpu_ecc_errors_total": piecewise((0, 0), (FALLS, 1)),
    "gpu_fabric_state": piecewise((0, 2)),
    "gpu_nvlink_links": piecewise((0, 18), (FALLS, 17)),
    "gpu_pcie_link_width": piecewise((0, 8)),
    "gpu_power_limit_watts": piecewise((0, 100)),
    "gpu_recovery_action": piecewise((0, 1)),
    "gpu_row_remap_failure": piecewise((0, 1)),
    "gpu_row_remap_pending": piecewise((0, 1)),
    "gpu_row_remap_banks": piecewise((0, 1)),
    "gpu_sram_error_threshold_exceeded": piecewise((0, 1)),
    "gpu_temperature_celsius": piecewise((0, 120)),
    "gpu_throttle_seconds_total": total((0, 0.5)),
    "gpu_unrepairable_memory": piecewise((0, 1)),
    "gpu_xid_last_timestamp_seconds": lambda at: at,
}
NOT_HERE = {"GpuLost", "GpuRetiredPagesPending", "GpuXidCritical"}
"""A lost GPU has no instances; this board has no such pages; its last Xid is of the other tier."""


def _divided() -> list[Series]:
    """What was scraped of a divided board, all of whose readings of health turn bad."""
    series = scraped([EXAMPLES["mig"]] * SCRAPES).series()
    return [replace(one, value=FAULTS.get(one.name, one.value)) for one in series]


def test_a_faulty_board_is_complained_about_once(tmp_path: Path) -> None:
    """With the labels of the board alone: no instance, one index, one UUID."""
    series = _divided()
    shares = {one.labels.get("gpu_instance") for one in series if one.name == "gpu_held"}
    assert len(shares) > 1
    names = "|".join(sorted(OF_A_BOARD))
    alerts = f'ALERTS{{alertname=~"{names}", alertstate="firing"}}'
    expected = [
        Expected(
            f"count by (alertname) (count by (alertname, location, of) ({alerts}))"
            f" - on (alertname) count by (alertname) ({alerts}) != 0",
            at,
            [],
        )
        for at in (10 * MINUTE, 20 * MINUTE, 30 * MINUTE)
    ]
    end = 30 * MINUTE
    expected.append(Expected(f'{alerts.removesuffix("}")}, gpu_instance!=""}}', end, []))
    fires = [(f'{{alertname="{name}"}}', 1.0) for name in sorted(OF_A_BOARD - NOT_HERE)]
    expected.append(Expected(f"count by (alertname) ({alerts}) ^ 0", end, fires))
    check(tmp_path, OF_A_BOARD, series, expected)
