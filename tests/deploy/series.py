# SPDX-License-Identifier: Apache-2.0
"""How many series a node of eight GPUs has: as many as the demo's, at most, within an hour.

``python -m tests.deploy.series FILE`` writes the numbers into docs/deploy.md (`make docs`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from exporter.cli.config import load
from exporter.cli.wiring import Parts
from exporter.web.server.counts import Counts
from tests.clocks import ManualClock

HOUR_SECONDS = 3600
STEP_SECONDS = 30
GPUS = 8
PHRASE = re.compile(r"(?<=\*\*)[\d,]+(?=\*\* series at level \*(full|core)\*)")


def most_series() -> Mapping[str, int]:
    """Return the most series by level."""
    return {level: _most(level) for level in ("full", "core")}


def _most(level: str) -> int:
    clock, most = ManualClock(0.0, 0.0), 0
    words = ("--demo", f"--metrics.level={level}", f"--poll.interval={STEP_SECONDS}s")
    with mock.patch("exporter.cli.wiring.node_clock", return_value=clock):
        parts = Parts(load(words, {}), Counts())
    while clock.time() < HOUR_SECONDS:
        snapshot = parts.publisher.tick()
        assert len(snapshot.gpus) == GPUS
        clock.advance(STEP_SECONDS)
        lines = parts.pages.page("text-0.0.4", zipped=False).decode().splitlines()
        most = max(most, sum(not line.startswith("#") for line in lines))
    return most


def written(page: str) -> str:
    """Return a page with the numbers that are true now."""
    most = most_series()
    return PHRASE.sub(lambda found: f"{most[found[1]]:,}", page)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
