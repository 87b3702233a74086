# SPDX-License-Identifier: Apache-2.0
"""A real fleet beside a page or a hostengine, which goes away and comes back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from exporter.clock import SystemClock
from exporter.model.reading import Activity, Reading
from exporter.sources.counters.child_counters import ChildCounters
from exporter.sources.dcgm.dcgm_counters import prepare
from exporter.sources.fleet import session
from exporter.sources.fleet.fleet import Fleet
from exporter.sources.fleet.session import SessionOptions
from exporter.sources.interface import DCGM, CounterOptions, NodeCounters
from exporter.sources.nvml.library import Library
from exporter.sources.table import COUNTER_SOURCES
from tests.fake_nvml import FakeNvml
from tests.sources.counters.bench import is_alive
from tests.sources.dcgm.engine import BINDINGS, FULL, Engine, gpu
from tests.sources.dcgm.pages import FULL as FULL_PAGE
from tests.sources.dcgm.pages import READINGS, Rows, page
from tests.sources.dcgm.server import answered, serving
from tests.waiting import wait_until

INTERVAL_SECONDS = 0.25


class Node:
    """A fleet with counters of DCGM; it reads a round each time that a test looks."""

    def __init__(self, library: str, counters: NodeCounters) -> None:
        self.fleet = Fleet(
            *(Library(library), SessionOptions(), SystemClock(), 600.0),
            node_counters={DCGM: counters},
        )
        self.fleet.start()
        self.uuids = [wait_until(partial(self.reading, index)).device.uuid for index in (0, 1)]

    def reading(self, index: int) -> Reading | None:
        """The reading of a GPU, if there is one."""
        self.fleet.round(INTERVAL_SECONDS)
        readings = (report.reading for report in self.fleet.reports())
        return next((each for each in readings if each and each.device.index == index), None)

    def activity(self, index: int, source: str = DCGM) -> Activity | None:
        """What this source measured of a GPU."""
        reading = self.reading(index)
        found = None if reading is None else reading.shares[0].activity
        return found if found is not None and found.source == source else None

    def state(self, index: int) -> str | None:
        """The reading state of DCGM's counters."""
        reading = self.reading(index)
        return None if reading is None else reading.states.get(DCGM)


Make = Callable[..., Node]


@pytest.fixture(name="node")
def _node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _only_gpm: None) -> Iterator[Make]:
    """Makes a node with these GPUs: ``node(counters, *devices)``."""
    monkeypatch.setattr(session, "COUNTER_SOURCES", COUNTER_SOURCES)
    nodes: list[Node] = []

    def make(counters: NodeCounters, *devices: dict[str, Any]) -> Node:
        fake = FakeNvml(tmp_path, {"devices": list(devices)})
        fake.activate(monkeypatch)
        nodes.append(Node(str(fake.library), counters))
        return nodes[-1]

    yield make
    for each in nodes:
        each.fleet.stop()


@pytest.mark.slow
def test_a_page_that_goes_away_and_comes_back(node: Make) -> None:
    """Each GPU has what the page has of it, and its state while there is none."""
    with serving() as server:
        options = CounterOptions(interval_seconds=INTERVAL_SECONDS, dcgm_url=server.url)
        a100 = {"product": "a100-sxm4-80gb", "utilization": 95}
        here = node(prepare(options, SystemClock()), a100, {"product": "rtx-4090"})

        def renewed() -> list[bytes]:
            readings = READINGS | {"energy": time.monotonic() // 1.0}
            rows = Rows(FULL_PAGE, readings, here.uuids[0])
            return [answered(page(rows, current=True).encode())]

        def integrated() -> Activity | None:
            found = here.activity(0)
            return found if found is not None and found.integrable else None

        server.answer = renewed
        found = wait_until(integrated, what="for a page that was renewed twice")
        assert found.tensor == pytest.approx(0.41)
        assert here.activity(1) is None
        assert (here.state(0), here.state(1)) == (None, "unsupported")
        assert here.fleet.counter_states[DCGM].up
        server.answer = answered(b"<html>", {"Content-Type": "text/html"})
        wait_until(lambda: here.state(0) == here.state(1) == "unreachable")
        wait_until(lambda: here.activity(0) is None)
        assert not here.fleet.counter_states[DCGM].up

        server.answer = renewed
        wait_until(integrated, what="for the page to be read again")
        assert here.state(0) is None


def test_only_the_gpu_that_nothing_better_measures_is_watched(
    node: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU with GPM costs the hostengine nothing; a child that dies is replaced."""
    engine = Engine(tmp_path)
    monkeypatch.setenv("FAKE_DCGM", str(engine.file))
    options = {"host": "localhost:5555", "bindings": str(BINDINGS)}
    counters = ChildCounters(DCGM, options, SystemClock(), patience_seconds=INTERVAL_SECONDS)
    here = node(counters, {"product": "a100-sxm4-80gb"}, {"product": "h100-sxm"})
    gpus = {"4": gpu(here.uuids[0]), "5": gpu(here.uuids[1])}
    engine.set(gpus=gpus, values={"1:4": FULL, "1:5": FULL})

    found = wait_until(lambda: here.activity(0))
    assert (found.tensor, found.integer) == pytest.approx((0.04, 0.16))
    assert here.state(0) is None
    assert wait_until(lambda: here.activity(1, "gpm"))
    assert here.state(1) is None
    assert {call for call in engine.calls if "AddEntity" in call} == {"dcgmGroupAddEntity 1 4"}

    pid = counters.supervisor.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: here.state(0) == "unreachable")
    assert not here.fleet.counter_states[DCGM].up
    wait_until(lambda: here.activity(0))
    assert here.state(0) is None
    assert here.fleet.counter_states[DCGM].failures_total == 1

    pid = counters.supervisor.pid
    here.fleet.stop()
    wait_until(lambda: not is_alive(pid))
