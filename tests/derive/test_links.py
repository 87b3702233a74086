# SPDX-License-Identifier: Apache-2.0
"""Bytes per second over the links, and what they cost in DRAM."""

from __future__ import annotations

import pytest

from exporter.derive.links import LinkRates, dram_of_links, link_rates
from exporter.model.reading import Activity, Vitals

BEFORE = Vitals(nvlink_transmit_bytes_total=1e12, nvlink_receive_bytes_total=2e12)
NOW = Vitals(
    nvlink_transmit_bytes_total=1e12 + 50.0,
    nvlink_receive_bytes_total=2e12 + 75.0,
    pcie_transmit_bytes=5.0,
    pcie_receive_bytes=10.0,
)


@pytest.mark.parametrize("seconds", [0.5, 1.0, 2.5])
def test_the_counters_go_before_the_board(seconds: float) -> None:
    """Each link by the counters where they have it, in bytes over their own time."""
    counted = Activity(
        "gpm", seconds, pcie_transmit_bytes=20.0, pcie_receive_bytes=30.0, nvlink_receive_bytes=40.0
    )
    rates = link_rates(counted, NOW, BEFORE, 7.0)
    assert rates.total == pytest.approx(90.0 / seconds)
    assert (rates.pcie, rates.nvlink) == (30.0 / seconds, 40.0 / seconds)


@pytest.mark.parametrize("seconds", [0.5, 1.0, 2.5])
def test_the_board_gives_what_the_counters_do_not(seconds: float) -> None:
    """Its NVLink totals as growth, its PCIe bytes as they are, the busier direction of each."""
    rates = link_rates(None, NOW, BEFORE, seconds)
    assert rates.total == pytest.approx(140.0 / seconds)
    assert (rates.pcie, rates.nvlink) == (10.0 / seconds, 75.0 / seconds)
    mixed = link_rates(Activity("gpm", 0.5, pcie_receive_bytes=8.0), NOW, BEFORE, seconds)
    assert (mixed.pcie, mixed.nvlink) == (16.0, 75.0 / seconds)


def test_what_is_not_known_has_no_rate() -> None:
    """No interval, no reading before, or a total that fell."""
    assert link_rates(None, NOW, BEFORE, None) == LinkRates()
    assert link_rates(None, NOW, BEFORE, 0.0) == LinkRates()
    assert link_rates(None, None, BEFORE, 1.0) == LinkRates()
    assert link_rates(Activity("gpm", 0.0, pcie_receive_bytes=8.0), None, None, None) == LinkRates()
    assert link_rates(None, NOW, None, 2.0).nvlink is None
    assert link_rates(None, NOW, None, 2.0).pcie == 5.0
    fell = link_rates(None, BEFORE, NOW, 2.0)
    assert (fell.nvlink, fell.total) == (None, None)
    one_way = Vitals(nvlink_transmit_bytes_total=1e12 + 50.0)
    assert link_rates(None, one_way, BEFORE, 2.0).nvlink == 25.0
    still = link_rates(None, BEFORE, BEFORE, 2.0)
    assert (still.nvlink, still.total) == (0.0, 0.0)


def test_traffic_costs_three_bytes_of_dram_for_each() -> None:
    """NVLink and PCIe alike; never more than all of it."""
    assert dram_of_links(LinkRates(nvlink=100.0), 1000.0) == pytest.approx(0.3)
    assert dram_of_links(LinkRates(pcie=50.0), 1000.0) == pytest.approx(0.15)
    assert dram_of_links(LinkRates(nvlink=100.0, pcie=50.0), 1000.0) == pytest.approx(0.45)
    assert dram_of_links(LinkRates(nvlink=900.0), 1000.0) == 1.0
    assert dram_of_links(LinkRates(nvlink=900.0), None) == 0.0
    assert dram_of_links(LinkRates(nvlink=900.0), 0.0) == 0.0
    assert dram_of_links(LinkRates(), 1000.0) == 0.0
