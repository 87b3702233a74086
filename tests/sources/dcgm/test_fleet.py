# SPDX-License-Identifier: Apache-2.0
"""A real fleet beside a real HTTP server, which goes away and comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.clock import SystemClock
from exporter.model.reading import Activity
from exporter.sources.dcgm.dcgm_counters import prepare
from exporter.sources.fleet import session
from exporter.sources.interface import DCGM, CounterOptions
from exporter.sources.table import COUNTER_SOURCES
from tests.fake_nvml import FakeNvml
from tests.sources.dcgm.nodes import FLEET_INTERVAL_SECONDS, FleetNode
from tests.sources.dcgm.pages import FULL, READINGS, Rows, page
from tests.sources.dcgm.server import Answer, Server, plain, serving
from tests.waiting import wait_until

A100, RTX = 0, 1
"""The indexes of the GPUs."""


@pytest.fixture(name="server")
def _server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(name="node")
def _node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _only_gpm: None, server: Server
) -> Iterator[FleetNode]:
    monkeypatch.setattr(session, "COUNTER_SOURCES", COUNTER_SOURCES)
    devices = [
        {"product": "a100-sxm4-80gb", "utilization": 95},
        {"product": "rtx-4090", "utilization": 50},
    ]
    fake = FakeNvml(tmp_path, {"devices": devices})
    fake.activate(monkeypatch)
    options = CounterOptions(interval_seconds=FLEET_INTERVAL_SECONDS, dcgm_url=server.url)
    node = FleetNode(str(fake.library), prepare(options, SystemClock()))
    yield node
    node.fleet.stop()


def test_a_page_that_goes_away_and_comes_back(node: FleetNode, server: Server) -> None:
    """Each GPU has what the page has of it, and its state while there is none."""
    uuid = wait_until(lambda: node.reading(A100)).device.uuid

    def renewed() -> Answer:
        readings = READINGS | {"energy": time.monotonic() // 1.0}
        return plain(page(Rows(FULL, readings, uuid), current=True))

    def integrated() -> Activity | None:
        found = node.activity(A100)
        return found if found is not None and found.integrable else None

    server.answer = renewed
    found = wait_until(integrated, what="for a page that was renewed twice")
    assert found.source == "dcgm"
    assert found.tensor == pytest.approx(0.41)
    assert node.activity(RTX) is None
    assert (node.state(A100), node.state(RTX)) == (None, "unsupported")
    assert node.fleet.counter_states[DCGM].up
    server.answer = Answer(b"<html>", headers={"Content-Type": "text/html"})
    wait_until(lambda: node.state(A100) == node.state(RTX) == "unreachable")
    wait_until(lambda: node.activity(A100) is None)
    state = node.fleet.counter_states[DCGM]
    assert not state.up
    assert state.failures_total >= 1

    server.answer = renewed
    wait_until(integrated, what="for the page to be read again")
    assert node.state(A100) is None
