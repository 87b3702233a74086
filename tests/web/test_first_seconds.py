# SPDX-License-Identifier: Apache-2.0
"""What page and `status` say in the first seconds of a node, and after long waits for data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from exporter.cli.status.render import View, view
from exporter.publisher import Publisher, Rules
from exporter.sources.simulate import Simulation, load_scenario
from exporter.specs import load_specs
from exporter.web.api.read import snapshot_of
from exporter.web.live.rows import rows
from exporter.web.wording import phrases, short
from exporter.web.wording.facts import Facts
from exporter.web.wording.state import state
from exporter.web.wording.summary import headline, totals
from tests import snapshots
from tests.cli.status.answers import answer_of
from tests.clocks import ManualClock
from tests.publisher.starving import Starving

BOOK = load_specs()
SCENARIOS = ("demo", "mixed")


class Seconds:
    """The seconds of a scenario from its start on, each as page and `status` have it."""

    def __init__(self, name: str, interval: float = 1.0) -> None:
        self._clock = ManualClock()
        self._interval = interval
        node = Simulation(load_scenario(name, BOOK), BOOK, "a:1", 0, self._clock)
        rules = Rules(interval_seconds=interval)
        self._publisher = Publisher(node, BOOK, rules, self._clock, training=[node.jobs])

    def pass_by(self, count: int) -> Iterator[tuple[list[Facts], View]]:
        for _ in range(count):
            snapshot = self._publisher.tick()
            answer = view(snapshot_of(answer_of(snapshot)))
            yield [facts for _, _, facts in rows(snapshot)], answer
            self._clock.advance(self._interval)


def test_an_instance_is_measured_before_its_first_interval_has_ended() -> None:
    """Counters give nothing on their first read, and the driver no utilization under MIG."""
    gpu = snapshots.h100_mig()
    shares = tuple(
        replace(share, recent=None, limiter=None, activity=None, saturation=None)
        for share in gpu.shares
    )
    first = snapshots.snapshot(replace(gpu, shares=shares))
    page = [facts for _, _, facts in rows(first)]
    terminal = view(snapshot_of(answer_of(first)))
    assert totals(page) == terminal.title == "1 GPU, 2 MIG instances: 2 measuring"


@pytest.mark.parametrize("name", SCENARIOS)
def test_before_the_first_interval_has_ended_all_is_being_measured(name: str) -> None:
    """One reading says nothing of what was done."""
    [(page, terminal)] = Seconds(name).pass_by(1)
    assert {state(each) for each in (*page, *terminal.gpus)} == {"measuring"}
    assert headline(page).text == f"{len(page)} GPUs are being measured"


@pytest.mark.parametrize("interval", [pytest.param(0.25, marks=pytest.mark.slow), 1.0, 5.0])
@pytest.mark.parametrize("name", SCENARIOS)
def test_words_fit_together_from_the_first_second_on(name: str, interval: float) -> None:
    """No stall above the idle time, nothing at 0 % that is busy, nothing starved of data that is
    limited by what it computes, and no window that is longer than what was seen."""
    for turn, (page, terminal) in enumerate(Seconds(name, interval).pass_by(round(30 / interval))):
        for facts in (*page, *terminal.gpus):
            word = state(facts)
            if word == "busy":
                assert facts.busy_ratio
            if facts.data_stall is not None and facts.idle_ratio is not None:
                assert facts.data_stall.upper <= facts.idle_ratio
            if word == "starved":
                assert short.limiter(facts) in (None, "idle", "often idle", "input")
                assert "limited" not in phrases.limiter(facts, word)
            if facts.window_seconds is not None:
                assert facts.window_seconds <= turn * interval + 1e-6
        assert [state(each) for each in page] == [state(each) for each in terminal.gpus]
        assert headline(page) == headline(terminal.gpus)
        assert totals(page) == terminal.title


@pytest.mark.parametrize("seconds", [20, 60])
def test_after_a_long_wait_a_busy_gpu_is_not_starved(seconds: int) -> None:
    """The last window of reports is the whole wait; the page speaks of the last 10 s."""
    with Starving() as node:
        node.computes(0.37)
        node.train([(seconds, seconds)] * 3)
        shown = [facts for seen in node.seen for _, _, facts in rows(seen)]
    ends = 1 + 4 * seconds  # ticks, at the beginning of the last wait
    computing = shown[ends - seconds + 12 : ends - 1]
    assert {state(facts) for facts in computing} == {"busy"}
    assert not any("idle" in headline([facts]).text for facts in computing)
    for facts in shown:
        _fits(facts)


def _fits(facts: Facts) -> None:
    stall, idle = facts.data_stall, facts.idle_ratio
    if stall is not None and idle is not None:
        assert stall.lower <= idle + 0.02
        assert facts.input_ratio is not None
        assert stall.lower - 0.15 <= facts.input_ratio <= stall.upper + 0.15
