# SPDX-License-Identifier: Apache-2.0
"""The stall of the last seconds beside windows of reports that are much longer."""

from __future__ import annotations

import pytest

from exporter.web.live.rows import rows
from exporter.web.wording.facts import Facts
from exporter.web.wording.state import state
from exporter.web.wording.summary import headline
from tests.publisher.starving import Starving


@pytest.mark.parametrize("seconds", [20, 60])
def test_after_a_long_wait_a_busy_gpu_is_not_starved(seconds: int) -> None:
    """The last window of reports is the whole wait; the page speaks of the last 10 s."""
    with Starving() as node:
        node.computes(0.37)
        node.train([(seconds, seconds)] * 3)
        shown = [facts for seen in node.seen for _, _, facts in rows(seen)]
    ends = 1 + 4 * seconds  # ticks, at the beginning of the last wait
    computing = shown[ends - seconds + 12 : ends - 1]
    assert {state(facts) for facts in computing} == {"busy"}
    assert not any("idle" in headline([facts]).text for facts in computing)
    for facts in shown:
        _fits(facts)


def _fits(facts: Facts) -> None:
    stall, idle = facts.data_stall, facts.idle_ratio
    if stall is not None and idle is not None:
        assert stall.lower <= idle + 0.02
        assert facts.input_ratio is not None
        assert stall.lower - 0.15 <= facts.input_ratio <= stall.upper + 0.15
