# SPDX-License-Identifier: Apache-2.0
"""A real fleet beside a hostengine, up to what is published of its GPUs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from exporter.clock import SystemClock
from exporter.model.reading import Activity, Reading
from exporter.sources.counters.child_counters import ChildCounters
from exporter.sources.fleet import session
from exporter.sources.fleet.fleet import Fleet
from exporter.sources.fleet.session import SessionOptions
from exporter.sources.interface import DCGM
from exporter.sources.nvml.library import Library
from exporter.sources.table import COUNTER_SOURCES
from tests.fake_nvml import FakeNvml
from tests.sources.counters.bench import is_alive
from tests.sources.dcgm.engine import BINDINGS, FULL, Engine, gpu
from tests.waiting import wait_until

INTERVAL_SECONDS = 0.25
A100, H100 = "a100-sxm4-80gb", "h100-sxm"


class Node:
    """A fleet with an A100 and an H100, and the child that asks the hostengine for them."""

    def __init__(self, fleet: Fleet, counters: ChildCounters, engine: Engine) -> None:
        self.fleet = fleet
        self.counters = counters
        self.engine = engine

    def reading(self, index: int) -> Reading | None:
        """After one more round."""
        self.fleet.round(INTERVAL_SECONDS)
        readings = (report.reading for report in self.fleet.reports())
        return next(
            (each for each in readings if each is not None and each.device.index == index), None
        )

    def activity(self, index: int, source: str) -> Activity | None:
        reading = self.reading(index)
        found = None if reading is None else reading.shares[0].activity
        return found if found is not None and found.source == source else None

    def state(self, index: int) -> str | None:
        reading = self.reading(index)
        return None if reading is None else reading.states.get(DCGM)


@pytest.fixture(name="node")
def _node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _only_gpm: None) -> Iterator[Node]:
    monkeypatch.setattr(session, "COUNTER_SOURCES", COUNTER_SOURCES)
    engine = Engine(tmp_path)
    monkeypatch.setenv("FAKE_DCGM", str(engine.file))
    fake = FakeNvml(tmp_path, {"devices": [{"product": A100}, {"product": H100}]})
    fake.activate(monkeypatch)
    clock = SystemClock()
    options = {"host": "localhost:5555", "bindings": str(BINDINGS)}
    counters = ChildCounters(DCGM, options, clock, patience_seconds=INTERVAL_SECONDS)
    library = Library(str(fake.library))
    fleet = Fleet(library, SessionOptions(), clock, 600.0, node_counters={DCGM: counters})
    fleet.start()
    node = Node(fleet, counters, engine)
    uuids = [wait_until(partial(node.reading, index)).device.uuid for index in (0, 1)]
    engine.set(gpus={"4": gpu(uuids[0]), "5": gpu(uuids[1])}, values={"1:4": FULL, "1:5": FULL})
    yield node
    fleet.stop()


def test_only_the_gpu_that_nothing_better_measures_is_watched(node: Node) -> None:
    """A GPU with GPM costs the hostengine nothing; a child that dies is replaced."""
    found = wait_until(lambda: node.activity(0, DCGM))
    assert found.tensor == pytest.approx(0.04)
    assert found.integer == pytest.approx(0.16)
    assert node.state(0) is None
    assert wait_until(lambda: node.activity(1, "gpm"))
    assert node.state(1) is None
    assert {call for call in node.engine.calls if "AddEntity" in call} == {"dcgmGroupAddEntity 1 4"}

    pid = node.counters.supervisor.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: node.state(0) == "unreachable")
    assert wait_until(lambda: node.activity(1, "gpm"))
    assert not node.fleet.counter_states[DCGM].up
    wait_until(lambda: node.activity(0, DCGM))
    assert node.state(0) is None
    assert node.fleet.counter_states[DCGM].failures_total == 1

    pid = node.counters.supervisor.pid
    node.fleet.stop()
    wait_until(lambda: not is_alive(pid))
