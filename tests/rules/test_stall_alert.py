# SPDX-License-Identifier: Apache-2.0
"""A job whose stall is only inferred raises the alert about it, however long its waits are."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from tests.publisher.starving import Starving
from tests.rules.promtool import MINUTE, STEP_SECONDS, Expected, check
from tests.rules.scrapes import Scrapes

POLL_SECONDS = 5
NAMES = (
    "gpu_held",
    "gpu_inferred_data_stall_lower_ratio",
    "gpu_inferred_data_stall_lower_seconds_total",
    "gpu_observed_seconds_total",
    "gpu_training_phase_gpu_idle_seconds_total",
    "gpu_training_run_seconds",
    "gpu_training_step_seconds_total",
    "gpu_training_verified",
)


@pytest.mark.parametrize(
    ("wait", "compute"),
    [(5, 15), (300, 300), *(pytest.param(each, each, marks=pytest.mark.slow) for each in (15, 60))],
)
def test_a_starving_job_raises_its_alert(wait: float, compute: float, tmp_path: Path) -> None:
    """Through client, ledger, publisher, page and rules; the GPU idles exactly while it waits."""
    with Starving(poll_seconds=POLL_SECONDS) as job:
        job.train([(wait, compute)] * int(45 * MINUTE / (wait + compute)))
    pages, scrapes = Pages(RenderOptions()), Scrapes("node-1:19400", NAMES)
    for snapshot in job.seen[:: STEP_SECONDS // POLL_SECONDS]:
        pages.publish(snapshot)
        scrapes.add(pages.page("text-0.0.4", zipped=False))
    firing = 'sum by (gpu) (ALERTS{alertname="GpuDataStallHigh", alertstate="firing"})'
    late = [
        Expected(firing, scrapes.end - before, [('{gpu="0"}', 1)])
        for before in (5 * MINUTE, MINUTE)
    ]
    check(tmp_path, ["GpuDataStallHigh"], scrapes.series(), late)
