# SPDX-License-Identifier: Apache-2.0
"""GpuHeldIdle on the pages of a scripted GPU whose hardware counters stand still at 0."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.scraped import Node
from tests.fake_nvml import square
from tests.rules.promtool import STEP_SECONDS, Expected, check
from tests.rules.rules import RULES

NAMES = frozenset(name for rule in RULES for name in re.findall(r"\bgpu_\w+", rule["expr"]))
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
