# SPDX-License-Identifier: Apache-2.0
"""A GPU whose compute units nothing measures: what is certain comes first."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from exporter.cli.status.render import COLUMNS, view
from exporter.model.snapshot import Bounds, Gpu, Recent
from exporter.web.columns import likely_range, readings
from exporter.web.live.rows import values_of
from exporter.web.live.view import node_view
from exporter.web.wording.facts import WIDEST_BAND_RATIO
from tests import snapshots


def bounded(lower: float, upper: float, dram: float | None = 0.3) -> Gpu:
    """A T4 whose saturation is between these bounds."""
    gpu = snapshots.t4_estimate()
    (share,) = gpu.shares
    assert share.saturation is not None
    bounds = Bounds(lower, upper)
    recent = Recent(
        seconds=10.0,
        utilization_ratio=0.97,
        saturation_bounds=bounds,
        estimates={} if dram is None else {"dram": dram},
    )
    saturation = replace(share.saturation, bounds=bounds)
    return replace(gpu, shares=(replace(share, recent=recent, saturation=saturation),))


def page_of(gpu: Gpu) -> Any:
    """The page's view of a node with this GPU, and its row."""
    page = node_view(snapshots.snapshot(gpu), sequence=1, interval_seconds=1.0)
    (row,) = page["rows"].values()
    return page, row


@pytest.mark.parametrize(
    ("lower", "upper", "known"),
    [
        (0.0, 0.99, False),
        (0.05, 0.951, False),
        (0.0, WIDEST_BAND_RATIO, True),
        (0.1, 1.0, True),
        (0.3, 0.99, True),
    ],
)
def test_a_band_wider_than_nine_tenths_is_not_known(
    lower: float, upper: float, known: bool
) -> None:
    """In the columns of page and history, in the row's words and bar, and in `status`."""
    gpu = bounded(lower, upper)
    snapshot = snapshots.snapshot(gpu)
    found = readings(gpu, gpu.shares[0], (), snapshot.timestamp_seconds)
    page, row = page_of(gpu)
    (saturation,) = (each for each in COLUMNS if each.header == "SAT")
    cell = saturation.cell(view(snapshot).gpus[0]).text

    assert ("saturation_lower" in found, "saturation_upper" in found) == (known, known)
    assert ("saturation_upper" in values_of(row)) is known
    assert ("saturation not known" in row["words"]["saturated"]) is not known
    assert (cell == "not known") is not known
    assert ("to 99 %" in json.dumps(page)) is (known and upper == 0.99)


@pytest.mark.parametrize("dram", [0.375, None])
def test_the_headline_and_the_row_have_one_range_of_memory(dram: float | None) -> None:
    """The likely range around its estimate; nothing of memory without an estimate."""
    page, row = page_of(bounded(0.0, 0.99, dram))
    range_ = likely_range(dram or 0.0)
    said = f", memory {100 * range_.lower:.0f} to {100 * range_.upper:.0f} % busy" if dram else ""

    assert f"97 % used{said}, " in page["headline"]
    assert page["headline"].endswith("; what its compute units do is not measured")
    assert row["words"]["saturated"] == f"saturation not known{said}"
