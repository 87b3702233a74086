# SPDX-License-Identifier: Apache-2.0
"""The order of the GPUs in ``status``, and what a terminal with fewer lines sums up."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from exporter.cli.status.render import ORDERS, fitted, ordered, rendered, view
from exporter.cli.terminal.screen import Screen
from exporter.model.snapshot import Gpu, Holder
from exporter.web.wording.facts import Facts, Range, Saturation
from exporter.web.wording.state import state
from tests import snapshots


def busy(gpu: int, **known: Any) -> Facts:
    facts = {"busy_ratio": 0.5, "limiter": "memory", "idle": False, "held": True}
    return Facts(gpu, **{**facts, **known})


def idle(gpu: int, seconds: float, *, held: bool = False, **known: Any) -> Facts:
    return Facts(gpu, busy_ratio=0.0, idle=True, idle_seconds=seconds, held=held, **known)


def saturated(ratio: float) -> Saturation:
    return Saturation(Range(ratio, ratio))


LOST = Facts(4, down_reason="lost: a call hangs")
STARVED = busy(3, data_stall=Range(0.5, 0.5), limiter="input")


def names(found: Any) -> list[str]:
    return [str(each.gpu) if each.instance is None else f"  /{each.instance}" for each in found]


def test_trouble_comes_first() -> None:
    """In the order of the headline, the most expensive state first; equal states by index."""
    found = [
        *(idle(0, 90.0), busy(1), idle(2, 90.0, held=True), STARVED, LOST),
        busy(5),
        busy(6, saturation=saturated(0.9)),
    ]
    assert [state(each) for each in ordered(found, "trouble")] == [
        *("lost", "starved", "held idle", "near its roof", "busy", "busy", "free")
    ]
    assert names(ordered(found, "trouble")) == ["4", "3", "2", "6", "1", "5", "0"]


FOUND = (
    busy(0, holder=Holder("bob"), saturation=saturated(0.2), mfu_ratio=0.1),
    busy(1, holder=Holder("ada"), saturation=saturated(0.6), busy_ratio=0.9),
    busy(2, saturation=None, mfu_ratio=0.4, busy_ratio=None),
    idle(3, 30.0, saturation=saturated(0.0)),
    idle(4, 3600.0, saturation=saturated(0.0)),
    busy(5, idle_ratio=0.4, busy_ratio=0.6),
)


def test_each_order() -> None:
    """The highest and the longest first; what is not known comes last."""
    orders = {
        "gpu": "012345",
        "owner": "102345",
        "utilization": "150234",
        "saturation": "102345",
        "mfu": "201345",
        "idle": "435012",
    }
    assert {name: "".join(names(ordered(FOUND, name))) for name in orders} == orders
    assert ORDERS.keys() - orders.keys() == {"trouble"}


def test_the_instances_of_a_gpu_stay_with_it() -> None:
    """A GPU with MIG on stands where the most troubled of its instances would."""
    board = Facts(1, divided=True)
    instances = [replace(busy(1), instance=1), replace(STARVED, gpu=1, instance=2)]
    found = [busy(0), board, *instances, idle(2, 90.0, held=True)]

    assert names(ordered(found, "trouble")) == ["1", "  /1", "  /2", "2", "0"]
    assert names(ordered(found, "gpu")) == ["0", "1", "  /1", "  /2", "2"]


def test_calm_gpus_are_summed_where_lines_are_few() -> None:
    """The calmest first, and only as many as it takes; a line that saves none is none."""
    found = ordered(
        [*map(busy, range(4)), idle(4, 90.0), idle(5, 90.0), replace(LOST, gpu=6)], "gpu"
    )

    assert fitted(found, 7) == (found, ())
    for lines, left in ((6, "01236"), (4, "016"), (1, "6")):
        shown, summed = fitted(found, lines)
        assert "".join(names(shown)) == left, "no GPU in trouble is summed up"
        assert names(summed) == list("543210"[: 7 - len(left)])
    assert fitted([busy(0), replace(LOST, gpu=1)], 1)[1] == ()


def test_a_divided_gpu_is_summed_as_a_whole() -> None:
    """If all of its instances are calm."""
    calm = [Facts(0, divided=True), replace(busy(0), instance=1), replace(busy(0), instance=2)]
    troubled = [Facts(1, divided=True), busy(1, instance=1), replace(STARVED, gpu=1, instance=2)]

    assert fitted([*calm, *troubled], 4) == (tuple(troubled), calm)


def node(count: int) -> list[Gpu]:
    """GPUs at work, of which one is lost and one is idle."""
    gpus = [snapshots.h100_training(index) for index in range(count)]
    return [*gpus[:40], snapshots.lost(40), snapshots.h100_idle(41), *gpus[42:]]


@pytest.mark.parametrize("columns", [60, 100, 160])
def test_64_gpus_fit_a_screen(columns: int) -> None:
    """A line for each on a tall one; else the calm ones share the last."""
    shown = view(snapshots.snapshot(*node(64)), sort="trouble")

    whole = list(rendered(shown, Screen(columns, 75)))
    assert len(whole) < 75
    assert sum(bool(re.match(r"\d+ +H100 ", line)) for line in whole) == 64
    short = list(rendered(shown, Screen(columns, 24)))
    assert len(short) == 23
    assert re.fullmatch(r"and 4[567] GPUs: 4[456] busy, 1 free", short[-1])
    first = next(at for at, line in enumerate(short) if line.startswith("GPU  "))
    assert short[first + 1].startswith("40 ")
    assert list(rendered(shown, Screen(columns))) == whole, "a pipe has them all"
