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
from exporter.sources.counters.child_counters import ChildCounters
from exporter.sources.fleet import session
from exporter.sources.interface import DCGM
from exporter.sources.table import COUNTER_SOURCES
from tests.fake_nvml import FakeNvml
from tests.sources.counters.bench import is_alive
from tests.sources.dcgm.engine import BINDINGS, FULL, Engine, gpu
from tests.sources.dcgm.nodes import FLEET_INTERVAL_SECONDS, FleetNode
from tests.waiting import wait_until

A100, H100 = "a100-sxm4-80gb", "h100-sxm"


class Node(FleetNode):
    """A fleet with an A100 and an H100, and the child that asks the hostengine for them."""

    def __init__(self, library: str, counters: ChildCounters, engine: Engine) -> None:
        super().__init__(library, counters)
        self.counters = counters
        self.engine = engine


@pytest.fixture(name="node")
def _node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _only_gpm: None) -> Iterator[Node]:
    monkeypatch.setattr(session, "COUNTER_SOURCES", COUNTER_SOURCES)
    engine = Engine(tmp_path)
    monkeypatch.setenv("FAKE_DCGM", str(engine.file))
    fake = FakeNvml(tmp_path, {"devices": [{"product": A100}, {"product": H100}]})
    fake.activate(monkeypatch)
    options = {"host": "localhost:5555", "bindings": str(BINDINGS)}
    patience = FLEET_INTERVAL_SECONDS
    counters = ChildCounters(DCGM, options, SystemClock(), patience_seconds=patience)
    node = Node(str(fake.library), counters, engine)
    uuids = [wait_until(partial(node.reading, index)).device.uuid for index in (0, 1)]
    engine.set(gpus={"4": gpu(uuids[0]), "5": gpu(uuids[1])}, values={"1:4": FULL, "1:5": FULL})
    yield node
    node.fleet.stop()


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
