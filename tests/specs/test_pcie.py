# SPDX-License-Identifier: Apache-2.0
"""What the PCI Express table promises."""

from __future__ import annotations

import pytest

from exporter.specs.pcie import pcie_bytes_per_second


@pytest.mark.parametrize(
    ("generation", "lane"),
    [(1, 0.25), (2, 0.5), (3, 0.98462), (4, 1.96923), (5, 3.93846), (6, 7.5625)],
)
def test_lane_rates(generation: int, lane: float) -> None:
    """Per lane and direction, after encoding, in GB/s; lanes add up."""
    assert pcie_bytes_per_second(generation, 1) == pytest.approx(lane * 1e9, rel=1e-5)
    assert pcie_bytes_per_second(generation, 16) == pytest.approx(16 * lane * 1e9, rel=1e-5)


@pytest.mark.parametrize(
    ("generation", "lanes"), [(None, 16), (5, None), (0, 16), (7, 16), (5, 0), (5, 33), (-1, -1)]
)
def test_unknown(generation: int | None, lanes: int | None) -> None:
    """An unknown generation or an impossible width has no rate."""
    assert pcie_bytes_per_second(generation, lanes) is None
