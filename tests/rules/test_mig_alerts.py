# SPDX-License-Identifier: Apache-2.0
"""A fault of a board that is divided into MIG instances raises one alert, not one for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from exporter.exposition.catalogue import CATALOGUE
from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from tests.rules.promtool import MINUTE, Expected, Series, Value, check, piecewise, total
from tests.rules.rules import RULES_BY_GROUP
from tests.rules.scrapes import Scrapes
from tests.snapshots import EXAMPLES

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
    pages, scrapes = Pages(RenderOptions()), Scrapes("node-1:19400", CATALOGUE)
    for _ in range(SCRAPES):
        pages.publish(EXAMPLES["mig"])
        scrapes.add(pages.page("text-0.0.4", zipped=False))
    return [replace(one, value=FAULTS.get(one.name, one.value)) for one in scrapes.series()]


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
