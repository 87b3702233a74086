# SPDX-License-Identifier: Apache-2.0
"""What GPUs draw while held idle is counted as it is drawn, not as a mean over all idle time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboards.test_sums import query_of
from tests.rules.cases import counter, held_by
from tests.rules.promtool import HOUR, MINUTE, Expected, check, total
from tests.rules.scrapes import Node

AT = 20 * MINUTE
PHASE_SCRAPES = 5
JOULES_PER_KWH = 3.6e6
HELD_WATTS, FREE_WATTS = 130, 40
JOB = {"pid": 1, "bytes": 2**30}
READ = (
    "gpu_held",
    "gpu_holder_info",
    "gpu_idle_seconds_total",
    "gpu_held_idle_seconds_total",
    "gpu_idle_energy_joules_total",
    "gpu_held_idle_energy_joules_total",
)


@pytest.mark.parametrize("gpm", [{"supported": 0}, {"graphics": 0, "sm": 0, "dram": 0}])
def test_the_energy_of_held_idle_time_is_that_of_a_scripted_gpu(
    gpm: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held at 130 W and free at 40 W by turns, idle all the time: a mean of both is 85 W. From the
    driver to the panels of the page, over a quarter of an hour, of which half was held."""
    node = Node(tmp_path, monkeypatch, READ, utilization=0, gpm=gpm, power=FREE_WATTS)
    node.run(1)
    for _ in range(4):
        node.run(PHASE_SCRAPES, power=FREE_WATTS, processes=[])
        node.run(PHASE_SCRAPES, power=HELD_WATTS, processes=[JOB])

    truth = HELD_WATTS * 7.5 * MINUTE / JOULES_PER_KWH
    names = ("Held idle/energy", "By node/D", "By GPU/E", "GPU-hours by owner/E")
    check(
        tmp_path,
        [],
        node.scrapes.series(),
        [
            Expected(f"round(sum({query_of(f'idle/{name}')}) / {truth}, 0.1)", AT, [("{}", 1)])
            for name in names
        ],
    )


def test_the_energy_of_owners_is_what_they_drew(tmp_path: Path) -> None:
    """Of two who held an idle GPU for equally long, alice drew 300 W and bob 60 W,
    which a rate over two minutes blurs."""
    change = AT - 7.5 * MINUTE
    series = [
        *held_by(("alice", 0, change), ("bob", change, 2 * HOUR), idle=((0, 1),)),
        counter("gpu_held_idle_energy_joules_total", total((0, 300), (change, 60))),
    ]
    query = f"round(({query_of('idle/GPU-hours by owner/E')}) * {JOULES_PER_KWH / 450}, 100)"
    rows = [('{owner="alice"}', 300), ('{owner="bob"}', 100)]
    check(tmp_path, [], series, [Expected(query, AT, rows)])
