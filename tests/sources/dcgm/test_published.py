# SPDX-License-Identifier: Apache-2.0
"""DCGM's counters as they are published: page, preferred source and publisher together."""

from __future__ import annotations

import pytest

from exporter.exposition.parts import Node as PublishedNode
from exporter.exposition.render import Renderer, RenderOptions
from exporter.exposition.render import page as page_of
from exporter.model.reading import Process
from tests.clocks import ManualClock
from tests.sources.dcgm.nodes import PageNode
from tests.sources.dcgm.pages import STOCK


@pytest.fixture(name="node")
def _node() -> PageNode:
    return PageNode(ManualClock())


def test_the_stock_list_measures_what_it_has(node: PageNode) -> None:
    """Engine, tensor and DRAM are measured; SM and the other pipes are bounded by the engine."""
    node.fields = STOCK
    share = node.share(8)

    assert share.activity is not None
    assert (share.activity.engine, share.activity.tensor) == pytest.approx((0.93, 0.41))
    saturation = share.saturation
    assert saturation is not None
    assert (saturation.source, saturation.complete, saturation.ratio) == ("dcgm", False, None)
    assert saturation.bounds.lower == pytest.approx(0.41)
    assert saturation.bounds.upper == pytest.approx(0.93)
    assert set(saturation.unmeasured) == {"sm", "fma", "fp64", "int"}
    blocks = Renderer(RenderOptions()).blocks(PublishedNode(node.snapshot))
    text = page_of(blocks, "text-0.0.4").decode()
    assert 'complete="no"' in text
    assert 'roofline_exporter_source_up{source="dcgm"} 1\n' in text
    assert "gpu_saturation_ratio{" not in text


def test_a_page_of_every_30_s_is_shown_and_the_totals_go_on_without_it(
    node: PageNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle and limited time are those of the driver's utilization; no second is DCGM's."""
    monkeypatch.setattr(node, "renewal", lambda: node.clock.monotonic() // 30.0)
    node.working, node.processes = False, (Process(1, "compute", 2**30),)
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


def test_a_preferred_source_is_taken_and_nothing_is_scraped(node: PageNode) -> None:
    """DCGM is scraped while it fails, and no longer when it answers again."""
    found, scrapes = [], []
    for there in (True, False, True):
        node.preferred.there = node.preferred.answers = there
        found.append(node.share(15).saturation)
        scrapes.append(node.scrapes)
    node.share(10)

    assert [each.source for each in found if each is not None] == ["gpm", "dcgm", "gpm"]
    assert scrapes[0] == 0
    assert node.scrapes == scrapes[-1]
