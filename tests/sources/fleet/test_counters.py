# SPDX-License-Identifier: Apache-2.0
"""Which counter source measures a share, when several are open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pytest

from exporter.errors import DeviceGone
from exporter.model.reading import Activity, Device
from exporter.sources.fleet.counters import SILENT_READS, Counters, CountersRead
from exporter.sources.interface import CounterRow, OpenedGpu
from exporter.sources.reading_state import Journal
from tests.clocks import ManualClock

WHOLE = None


class Fake:
    """A counter source that measures `shares` and answers for those in `answering`.

    Like a real one it gives the mean over the time since it last answered.
    """

    def __init__(self, name: str, shares: Sequence[int | None]) -> None:
        self.name = name
        self.shares = set(shares)
        self.answering = set(shares)
        self.ratio = 0.5
        self.since: dict[int | None, float] = {}
        self.closed = False

    def measures(self, gpu_instance: int | None) -> bool:
        return gpu_instance in self.shares

    def read(self, monotonic_seconds: float) -> Mapping[int | None, Activity]:
        found = {}
        for share in self.shares & self.answering:
            since = self.since.get(share, monotonic_seconds - 1.0)
            found[share] = Activity(self.name, monotonic_seconds - since, sm=self.ratio)
            self.since[share] = monotonic_seconds
        return found

    def close(self) -> None:
        self.closed = True


class Bench:
    """Two sources, of which `first` is preferred."""

    def __init__(self, *shares: int | None, enabled: Sequence[str] = ("first", "second")) -> None:
        shares = shares or (WHOLE,)
        self.clock = ManualClock()
        self.journal = Journal("GPU 0")
        self.gpu = OpenedGpu(None, Device(index=0, uuid="GPU-a", name="x"), shares, self.journal)
        self.first, self.second = Fake("first", shares), Fake("second", shares)
        self.opened: dict[str, OpenedGpu] = {}
        rows = [
            CounterRow(each.name, "", partial(self._open, each))
            for each in (self.first, self.second)
        ]
        self.counters = Counters(self.gpu, enabled, rows)

    def _open(self, source: Fake, gpu: OpenedGpu) -> Fake:
        self.opened[source.name] = gpu
        return source

    def read(self, count: int = 1) -> CountersRead:
        for _ in range(count):
            self.clock.advance(1.0)
            found = self.counters.read(self.clock)
        return found

    def given(self, count: int = 1) -> list[str | None]:
        """The source of the whole GPU's activity in each of the next reads."""
        return [
            None if WHOLE not in found.activities else found.activities[WHOLE].source
            for found in (self.read() for _ in range(count))
        ]


def test_each_share_has_its_own() -> None:
    """A source may measure some of the GPU instances, or none."""
    bench = Bench(1, 2, 3)
    bench.first.shares = {1}
    bench.second.shares = {1, 2}

    assert bench.read().sources == {1: "first", 2: "second"}


def test_a_source_that_skips_a_read_stays() -> None:
    """Nothing is published for that interval rather than another source's value."""
    bench = Bench()
    bench.read()
    bench.first.answering = set()

    for _ in range(SILENT_READS - 1):
        found = bench.read()
        assert (found.sources, found.activities) == ({WHOLE: "first"}, {})


def test_a_silent_source_is_replaced_until_it_answers() -> None:
    """No second is counted twice when it comes back with the mean since its last answer."""
    bench = Bench()
    bench.read()
    bench.first.answering = set()
    silent = bench.given(6)
    bench.first.answering = {WHOLE}

    assert silent == [None, None, *["second"] * 4]
    assert bench.given(3) == [None, "first", "first"]


def test_every_second_is_counted_at_most_once() -> None:
    """Whichever source gives it, and however often they take turns."""
    bench = Bench()
    seconds = 0.0
    for number in range(60):
        bench.first.answering = {WHOLE} if number % 7 < 2 else set()
        bench.second.answering = {WHOLE} if number % 5 else set()
        seconds += sum(each.seconds for each in bench.read().activities.values())

    assert 30.0 < seconds <= 60.0


def test_when_all_are_silent_the_preferred_one_is_expected() -> None:
    """So the share stays a measured one, for the publisher to decide how long."""
    bench = Bench()
    bench.read()
    bench.first.answering = bench.second.answering = set()

    assert bench.read(9).sources == {WHOLE: "first"}


def test_a_source_that_measures_again_is_preferred_once_it_answers() -> None:
    """Its first read is only a start, for which the other is not given up."""
    bench = Bench()
    bench.first.shares = set()
    assert bench.given(2) == ["second", "second"]
    bench.first.shares, bench.first.answering = {WHOLE}, set()
    assert bench.given() == ["second"]
    bench.first.answering = {WHOLE}

    assert bench.given(2) == ["first", "first"]


def test_without_any_source_nothing_is_expected() -> None:
    """And the states name those that the configuration left out."""
    bench = Bench(enabled=())

    assert bench.read() == CountersRead({}, {}, {})
    assert bench.journal.states == {"first": "disabled", "second": "disabled"}


def test_a_gpu_lost_while_opening_leaves_no_source_open() -> None:
    """The one that was opened before is closed again."""
    bench = Bench()

    def lost(gpu: OpenedGpu) -> Fake:
        raise DeviceGone("lost")

    rows = [CounterRow("first", "", lambda gpu: bench.first), CounterRow("second", "", lost)]
    with pytest.raises(DeviceGone):
        Counters(bench.gpu, ("first", "second"), rows)
    assert bench.first.closed


def test_a_source_can_ask_whether_a_preferred_one_measures_all_shares() -> None:
    """One that costs something rests meanwhile; a preferred one that falls silent wakes it."""
    bench = Bench(0, 1)
    found = []
    for answering, shares, reads in (
        ({0, 1}, {0, 1}, 1),
        ({0}, {0, 1}, SILENT_READS),
        ({0, 1}, {0, 1}, 1),
        ({0, 1}, {0}, 1),
    ):
        bench.first.answering, bench.first.shares = set(answering), set(shares)
        bench.read(reads)
        found.append(bench.opened["second"].better())

    assert found == [True, False, True, False]
    assert not bench.opened["first"].better()


def test_counters_that_stand_still_give_way() -> None:
    """To the next source, while the driver says that the GPU works."""
    bench = Bench()
    bench.first.ratio = 0.0
    names = []
    for _ in range(12):
        bench.clock.advance(1.0)
        found = bench.counters.read(bench.clock, worked_seconds=1.0).activities.get(WHOLE)
        names.append(None if found is None else found.source)

    assert names[:3] == ["first"] * 3
    assert names[-6:] == ["second"] * 6
    assert bench.journal.states == {"first": "implausible"}
