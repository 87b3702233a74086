# SPDX-License-Identifier: Apache-2.0
"""DCGM's counters as they are published: page, driver, session and publisher together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from exporter.exposition.parts import Node as PublishedNode
from exporter.exposition.render import Renderer, RenderOptions
from exporter.exposition.render import page as page_of
from exporter.model.readers import CounterState
from exporter.model.reading import SlotReport
from exporter.model.snapshot import Share, Snapshot
from exporter.publisher import Publisher, Rules
from exporter.sources.dcgm.dcgm_counters import PageSource
from exporter.sources.fleet import session
from exporter.sources.fleet.session import Session, SessionOptions
from exporter.sources.interface import DCGM, CounterOptions
from exporter.sources.table import COUNTER_SOURCES
from tests.fake_nvml import fault
from tests.sources.dcgm.nodes import SPECS, OneGpu
from tests.sources.dcgm.pages import FULL, READINGS, STOCK, Rows, page
from tests.sources.dcgm.turns import Turns

Open = Callable[..., Any]
GPM = {"graphics": 90, "sm": 80, "tensor": 40, "dram": 30}


@pytest.fixture(autouse=True)
def _all_sources(monkeypatch: pytest.MonkeyPatch, _only_gpm: None) -> None:
    monkeypatch.setattr(session, "COUNTER_SOURCES", COUNTER_SOURCES)


class Node(OneGpu):
    """One GPU of the fake driver and a dcgm-exporter beside it, on the rig's clock."""

    def __init__(
        self,
        rig: Any,
        fields: dict[int, float],
        every: float = 1.0,
    ) -> None:
        self.rig = rig
        self.every = every
        self.fields = fields
        self.scrapes = 0
        options = CounterOptions(dcgm_url="http://127.0.0.1:9400/metrics")
        self.source = PageSource(options, rig, lambda target: self.get())
        self.turns = Turns(self.source, rig)
        self.session = Session(
            rig.handle,
            0,
            SessionOptions(),
            rig,
            rig.past,
            lambda: None,
            lambda seconds: None,
            node={DCGM: self.source},
        )
        self.publisher = Publisher(self, SPECS, Rules(interval_seconds=1.0), rig)

    def get(self) -> str:
        self.scrapes += 1
        readings = READINGS | {"energy": self.rig.monotonic() // self.every}
        return page(Rows(self.fields, readings, self.session.device.uuid))

    @property
    def counter_states(self) -> dict[str, CounterState]:
        state = self.source.state
        return {} if state is None else {DCGM: state}

    def round(self, wait_seconds: float) -> None:
        self.reading = self.session.read()

    def reports(self) -> list[SlotReport]:
        (report,) = super().reports()
        return [replace(report, failures=dict(self.rig.failures))]

    def tick(self, count: int = 1) -> Snapshot:
        """The snapshot after so many further rounds of a second."""
        for _ in range(count):
            self.turns.advance(1.0)
            snapshot = self.publisher.tick()
        self.snapshot = snapshot
        return snapshot

    def share(self, count: int = 1) -> Share:
        (share,) = self.tick(count).gpus[0].shares
        return share


def rendered(snapshot: Snapshot) -> str:
    """The page of metrics."""
    blocks = Renderer(RenderOptions()).blocks(PublishedNode(snapshot))
    return page_of(blocks, "text-0.0.4").decode()


def test_the_stock_list_measures_what_it_has(open_gpu: Open) -> None:
    """Engine, tensor and DRAM are measured; SM and the other pipes are bounded by the engine."""
    node = Node(open_gpu(product="a100-sxm4-80gb", utilization=95), STOCK)
    share = node.share(8)

    assert share.activity is not None
    assert (share.activity.engine, share.activity.tensor) == pytest.approx((0.93, 0.41))
    saturation = share.saturation
    assert saturation is not None
    assert (saturation.source, saturation.complete, saturation.ratio) == ("dcgm", False, None)
    assert saturation.bounds.lower == pytest.approx(0.41)
    assert saturation.bounds.upper == pytest.approx(0.93)
    assert set(saturation.unmeasured) == {"sm", "fma", "fp64", "int"}
    text = rendered(node.snapshot)
    assert 'complete="no"' in text
    assert 'roofline_exporter_source_up{source="dcgm"} 1\n' in text
    assert "gpu_saturation_ratio{" not in text


def test_a_page_of_every_30_s_is_shown_and_the_totals_go_on_without_it(open_gpu: Open) -> None:
    """Idle and limited time are those of the driver's utilization; no second is DCGM's."""
    rig = open_gpu(product="a100-sxm4-80gb", utilization=0, processes=[{"pid": 1, "bytes": 2**30}])
    rig.advance(20)
    node = Node(rig, FULL, every=30.0)
    before = node.share(10).totals
    share = node.share(100)
    totals = share.totals

    assert share.saturation is not None
    assert (share.saturation.source, share.saturation.ratio) == ("dcgm", 0.41)
    assert totals.observed_seconds.get("activity", 0.0) == 0.0
    assert totals.engine_active_seconds is None
    assert (totals.idle_seconds or 0) - (before.idle_seconds or 0) == pytest.approx(100, abs=1.2)
    assert (totals.held_idle_seconds or 0) - (before.held_idle_seconds or 0) == (
        pytest.approx(100, abs=1.2)
    )
    limited = sum(totals.limited_seconds.values()) - sum(before.limited_seconds.values())
    assert limited == pytest.approx(100, abs=1.2)
    assert (totals.flops_upper or 0) > (before.flops_upper or 0)


def test_gpm_is_preferred_and_nothing_is_scraped(open_gpu: Open) -> None:
    """On a Hopper; DCGM is scraped while GPM fails, and no longer when GPM answers again."""
    rig = open_gpu(product="h100-sxm", utilization=90, gpm=GPM)
    node = Node(rig, FULL)
    share = node.share(10)
    assert share.saturation is not None
    assert share.saturation.source == "gpm"
    assert node.scrapes == 0
    assert "dcgm" not in node.reading.states
    rig.fake.update(faults=[fault("nvmlGpm*", error=10)])
    lost = node.share(15).saturation
    rig.fake.update(faults=[])
    back = node.share(10).saturation
    scrapes = node.scrapes
    node.tick(10)

    assert lost is not None
    assert back is not None
    assert (lost.source, back.source) == ("dcgm", "gpm")
    assert node.scrapes == scrapes
