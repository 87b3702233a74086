# SPDX-License-Identifier: Apache-2.0
"""Truths of a scripted GPU as they are published: driver, session and publisher together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from exporter.model.reading import SlotReport, XidRecord
from exporter.model.snapshot import Gpu, Share, ShareTotals
from exporter.publisher import Publisher, Rules
from exporter.specs import load_specs

Open = Callable[..., Any]
SPECS = load_specs()


class Node:
    """One GPU of the fake driver, read by a real session and published, on the rig's clock."""

    name = "nvml"
    problem: str | None = None
    failed_initialisations = 0

    def __init__(self, rig: Any, interval_seconds: float = 1.0) -> None:
        self.rig = rig
        self.interval = interval_seconds
        self.session = rig.session()
        self.publisher = Publisher(self, SPECS, Rules(interval_seconds=interval_seconds), rig)

    def xids(self) -> dict[str, dict[int, XidRecord]]:
        return {}

    def devices(self) -> dict[str, int]:
        return {"nvml": 1}

    def round(self, wait_seconds: float) -> None:
        self.reading = self.session.read()

    def reports(self) -> list[SlotReport]:
        return [SlotReport(0, self.reading.device, self.reading, None, {})]

    def tick(self, count: int = 1, seconds: float | None = None) -> Share:
        """The share after so many further polls."""
        for _ in range(count):
            self.rig.advance(self.interval if seconds is None else seconds)
            gpu = self.publisher.tick().gpus[0]
        return share_of(gpu)

    @property
    def totals(self) -> ShareTotals:
        return next(iter(self.publisher._gpus.values())).shares[None].totals


def share_of(gpu: Gpu) -> Share:
    (share,) = gpu.shares
    return share


@pytest.mark.parametrize("product", ["a100-sxm4-80gb", "v100-sxm2", "t4", "rtx-4090", "l40s"])
def test_loading_a_model_is_not_idle_without_counters(open_gpu: Open, product: str) -> None:
    """Twenty seconds of copies without a kernel, then ten of nothing."""
    rig = open_gpu(
        product=product,
        utilization=0,
        memory_utilization=30,
        gpm={"supported": 0},
        processes=[{"pid": 1, "bytes": 2**30}],
    )
    rig.advance(20)
    node = Node(rig)
    loading = node.tick(20).totals
    rig.fake.device(0, memory_utilization=0)
    after = node.tick(10).totals

    assert loading.observed_seconds["utilization"] >= 18
    assert loading.idle_seconds == loading.held_idle_seconds == loading.idle_energy_joules == 0
    assert after.idle_seconds == pytest.approx(10, abs=1.2)
    assert after.held_idle_seconds == after.idle_seconds
