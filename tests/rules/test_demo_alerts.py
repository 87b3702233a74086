# SPDX-License-Identifier: Apache-2.0
"""The bundled demo has a lost GPU for as long as the alert about it needs."""

from __future__ import annotations

from pathlib import Path

from tests.rules.promtool import MINUTE, STEP_SECONDS, Expected, check, selector
from tests.rules.scrapes import of_demo

NAMES = ("gpu_up", "roofline_exporter_reading_state", "gpu_xid_last_timestamp_seconds")


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
