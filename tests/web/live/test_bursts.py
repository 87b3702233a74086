# SPDX-License-Identifier: Apache-2.0
"""GPUs that work in bursts, read by the real session from a scripted driver, on the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from exporter.cli.status.render import view
from exporter.publisher import Publisher, Rules
from exporter.web.api.convert import gpus_answer
from exporter.web.api.models.json import json_text
from exporter.web.api.read import snapshot_of
from exporter.web.live.rows import values_of
from exporter.web.live.view import Views
from exporter.web.store import Store
from exporter.web.wording.state import state
from tests.fake_nvml import square
from tests.recordings import SPECS, Node

SECONDS, SETTLED = 70, 40
BURSTS = {0: (0.5, 2.0), 1: (3.0, 3.0), 2: (0.5, 2.0), 3: (3.0, 3.0)}
"""By GPU: how long it works and pauses. GPUs 0 and 1 have counters, the others do not."""
TENSOR, DRAM = 0.9, 0.4


def _device(gpu: int) -> dict[str, Any]:
    work, pause = BURSTS[gpu]
    period, duty = work + pause, work / (work + pause)
    device: dict[str, Any] = {
        "product": "h100-sxm" if gpu < 2 else "t4",
        "utilization": square(period=period, duty=duty, high=100),
        "memory_utilization": square(period=period, duty=duty, high=30),
        "power": 200,
        "processes": {"compute": [{"pid": 4242, "bytes": 2**33}]},
    }
    if gpu < 2:
        quiet = dict.fromkeys(("fp64", "fp32", "fp16", "int"), 0)
        active = {"graphics": 1.0, "sm": 0.95, "tensor": TENSOR, "hmma": TENSOR, "dram": DRAM}
        device["gpm"] = quiet | {
            name: square(period=period, duty=duty, high=100 * ratio)
            for name, ratio in active.items()
        }
    return device


class Shown:
    """What page and ``status`` said in each second."""

    def __init__(self) -> None:
        self.rows: list[list[dict[str, Any]]] = []
        self.totals: set[str] = set()
        self.status: set[tuple[str, ...]] = set()
        self.store = Store()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """The page of a node of bursty GPUs, second by second."""
    with pytest.MonkeyPatch.context() as patch:
        scenario = {"driver_version": "580.95.05", "devices": [_device(gpu) for gpu in BURSTS]}
        node = Node(tmp_path_factory.mktemp("driver"), scenario)
        node.fake.activate(patch)
        node.start(len(BURSTS))
        seen = Shown()
        views = Views(seen.store, lambda: 1.0)
        publisher = Publisher(node.fleet, SPECS, Rules(), node.clock, (seen.store.publish,))
        for second in range(SECONDS):
            node.advance(1.0)
            snapshot = publisher.tick()
            if second < SETTLED:
                continue
            page = views.latest()
            seen.rows.append(list(page["rows"].values()))
            seen.totals.add(page["totals"])
            answer = json.loads(json_text(gpus_answer(snapshot)))
            seen.status.add(tuple(state(each) for each in view(snapshot_of(answer)).gpus))
        node.fleet.stop()
        yield seen


def test_each_keeps_one_state(shown: Shown) -> None:
    """In every second, on the page and in ``status``."""
    words = {tuple(row["words"]["word"] for row in rows) for rows in shown.rows}
    assert words == shown.status
    [(first, second, third, fourth)] = words
    assert first == third == "often idle"
    assert {second, fourth} <= {"often idle", "busy"}  # half of the time each
    assert len(shown.totals) == 1


@pytest.mark.parametrize("gpu", [0, 1])
def test_numbers_are_of_the_last_ten_seconds(shown: Shown, gpu: int) -> None:
    """The mean of 10 s is near the true mean of all time."""
    work, pause = BURSTS[gpu]
    duty = work / (work + pause)
    off = min(work, pause) * max(work, pause) / (work + pause) / 9.5 + 0.02
    for rows in shown.rows:
        values = values_of(rows[gpu])
        assert values["utilization"] == pytest.approx(duty, abs=off)
        assert values["saturation_lower"] == pytest.approx(TENSOR * duty, abs=TENSOR * off)
        assert values["saturation_lower"] == values["saturation_upper"]
        assert values["tensor"] == pytest.approx(TENSOR * duty, abs=TENSOR * off)
        assert values["idle"] == pytest.approx(1 - duty, abs=off + 0.05)
        assert values["bytes"] == pytest.approx(DRAM * duty * 3.35e12, abs=DRAM * off * 3.5e12)
        assert values["bytes"] > 0
        parts = ("idle", "narrow", "unsaturated", "clock", "saturated")
        assert sum(values[part] for part in parts) == pytest.approx(1, abs=0.005)
