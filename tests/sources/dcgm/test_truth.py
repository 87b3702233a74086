# SPDX-License-Identifier: Apache-2.0
"""What is published of a page is true, however often it is renewed, read and published."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property

import pytest

from exporter.model.reading import Utilization, Vitals
from exporter.model.snapshot import Share
from tests.clocks import ManualClock
from tests.sources.dcgm.nodes import PageNode
from tests.sources.dcgm.pages import FULL, READINGS, Rows, page

PEAK_FLOPS = 312e12
"""Of FP16 on the tensor cores, at the clock that the board has."""
CLOCK_HERTZ = 1.41e9
ROUNDING_RATIO = 0.02
RENEWALS = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 30.0]
POLLS = [0.1, 1.0, 5.0, 30.0]
FOLLOWED = 0.5
"""Seconds: a page that is renewed more often than that is not followed."""


@dataclass(frozen=True)
class Load:
    """Tensor work at full rate in a part of each period, from a moment on until another."""

    period: float
    duty: float
    since: float
    until: float

    def seconds(self, start: float, end: float) -> float:
        """How long it ran between two moments."""
        return self._until(end) - self._until(start)

    def _until(self, now: float) -> float:
        whole, rest = divmod(min(max(now, self.since), self.until) - self.since, self.period)
        return whole * self.duty * self.period + min(rest, self.duty * self.period)


class Node(PageNode):
    """A GPU under a load, and the page that DCGM has of it."""

    working = False
    """As far as it is known."""

    def __init__(self, load: Load, every: float, poll: float, seed: int) -> None:
        self.load, self.every = load, every
        self.random = random.Random(seed)
        super().__init__(ManualClock(monotonic_seconds=self.random.random()), poll)
        self.began = self.read_at = self.clock.monotonic()

    @cached_property
    def phase(self) -> float:
        return self.random.random() * self.every

    def get(self) -> str:
        self.clock.advance(self.random.random() * 0.03)
        number = (self.clock.monotonic() - self.phase) // self.every
        ends = self.phase + number * self.every
        busy = self.load.seconds(ends - self.every, ends) / self.every
        fields = dict.fromkeys(FULL, 0.0) | dict.fromkeys((1001, 1002, 1004, 1014), busy)
        return page(Rows(fields, READINGS | {"energy": number}))

    def vitals(self) -> Vitals:
        now = self.clock.monotonic()
        seconds = now - self.read_at
        busy = self.load.seconds(self.read_at, now) / seconds if seconds else 0.0
        self.read_at = now
        return Vitals(
            utilization=Utilization(busy, busy, seconds, lower_ratio=busy),
            clock_hertz={"sm": CLOCK_HERTZ, "memory": 1.6e9},
            energy_joules=60.0 * now + 340.0 * self.load.seconds(self.began, now),
        )


def loads(draw: random.Random, since: float, until: float) -> Load:
    return Load(draw.uniform(0.3, 20.0), draw.uniform(0.05, 1.0), since, until)


def is_complete(share: Share) -> bool:
    return share.saturation is not None and share.saturation.complete


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
@pytest.mark.parametrize("poll", POLLS)
@pytest.mark.parametrize("renewal", RENEWALS)
def test_bounds_hold_and_what_is_complete_is_true(renewal: float, poll: float, seed: int) -> None:
    """The FLOP bounds include the truth from the first second on, whatever the load does."""
    draw = random.Random(f"{renewal} {poll} {seed}")
    length = max(40.0, 8 * poll, 8 * min(renewal, 5.0))
    lead = 0.0 if seed % 2 else 2 * poll + 4 * min(renewal, 5.0) + 6.0
    load = loads(draw, 1.0 + lead, 1.0 + lead + length)
    node = Node(load, renewal, poll, seed)
    complete, told = [], []
    node.publisher.tick()
    first = node.clock.monotonic()
    while node.clock.monotonic() < load.until + 2 * poll + 2 * min(renewal, 5.0) + 3.0:
        share = node.share()
        if node.clock.monotonic() > load.since:
            complete.append(is_complete(share))
            told.append(share.activity is not None and share.activity.integrable)
    truth = load.seconds(first, node.clock.monotonic())

    totals = share.totals
    assert (totals.flops_lower or 0.0) <= truth * PEAK_FLOPS * (1 + ROUNDING_RATIO)
    assert (totals.flops_upper or 0.0) >= truth * PEAK_FLOPS * (1 - ROUNDING_RATIO)
    if renewal < FOLLOWED:
        assert not any(complete[-len(complete) // 2 :])
        assert "tensor" not in totals.pipe_active_seconds or not any(told)
    elif lead and renewal <= 5.0:
        assert all(complete)
        assert all(told)
        assert totals.pipe_active_seconds["tensor"] == pytest.approx(
            truth, rel=ROUNDING_RATIO, abs=0.05 * renewal
        )


def test_a_load_in_step_with_the_page() -> None:
    """The active seconds are right even if every second renewal shows idle time only."""
    for seed, renewal in enumerate((0.7, 0.75, 1.0, 1.3)):
        load = Load(2 * renewal, 0.5, 15.0, 115.0)
        node = Node(load, renewal, 1.0, seed)
        while node.clock.monotonic() < load.until + 10.0:
            share = node.share()
        assert share.totals.pipe_active_seconds["tensor"] == pytest.approx(50.0, rel=0.03)


@pytest.mark.parametrize("poll", [1.0, 5.0])
@pytest.mark.parametrize("renewal", [1.0, 3.0])
def test_the_energy_of_idle_time_is_that_of_the_same_seconds(renewal: float, poll: float) -> None:
    """60 W at rest and 400 W at work, in phases of twenty seconds: what DCGM says comes late."""
    load = Load(40.0, 0.5, 10.0, 1000.0)
    node = Node(load, renewal, poll, 7)
    while node.clock.monotonic() < 60.0:
        before = node.share().totals
    while node.clock.monotonic() < 260.0:
        after = node.share().totals
    idle = (after.idle_seconds or 0.0) - (before.idle_seconds or 0.0)
    joules = (after.idle_energy_joules or 0.0) - (before.idle_energy_joules or 0.0)

    assert idle > 40.0
    # How the power went between two rounds is not known.
    assert joules == pytest.approx(60.0 * idle, rel=0.05 if poll == 1.0 else 0.16)
