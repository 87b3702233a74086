# SPDX-License-Identifier: Apache-2.0
"""Which counter source measures a share, and counters that stand still while the GPU works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import DeviceGone
from exporter.model.reading import Activity, Device, Utilization, Vitals
from exporter.sources.fleet.counters import (
    SILENT_READS,
    Counters,
    CountersRead,
    DeadCounters,
    worked_seconds,
)
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


DEAD = Activity("gpm", 1.0, engine=0.0, sm=0.0, tensor=0.0, dram=0.0)
ALIVE = replace(DEAD, dram=0.01)
STOCK = Activity("dcgm", 1.0, engine=0.0, tensor=0.0, dram=0.0, pcie_receive_bytes=5e9)


def vitals(utilization: float | None, watts: float | None) -> Vitals:
    seen = None if utilization is None else Utilization(utilization, utilization, 2.0)
    return Vitals(utilization=seen, power_watts=watts)


class Dead(DeadCounters):
    """Reads of one source after another, each with how long the GPU has worked since the last."""

    def read(self, activity: Activity, now: float, *, working: bool, step: float = 1) -> bool:
        self.work(step if working else 0.0)
        return self.believed("gpm", activity, now)


@pytest.mark.parametrize(
    ("read", "limit", "seconds"),
    [
        (vitals(1.0, 300.0), 400.0, 2.0),
        (vitals(0.5, 100.0), 400.0, 1.0),
        (vitals(0.5, 99.0), 400.0, 0.0),
        (vitals(0.4, 300.0), 400.0, 0.8),
        (vitals(0.1, 80.0), 400.0, 0.2),
        (vitals(0.04, 300.0), 400.0, 0.0),
        (vitals(None, 300.0), 400.0, 0.0),
        (vitals(0.1, None), 400.0, 0.0),
        (vitals(1.0, 300.0), None, 0.0),
    ],
)
def test_a_gpu_works_by_utilization_and_power(
    read: Vitals, limit: float | None, seconds: float
) -> None:
    """Power is asked where utilization is high, and in doubt it does not work."""
    assert worked_seconds(read, limit, opened=True) == pytest.approx(seconds)


def test_without_a_process_a_low_utilization_is_no_work() -> None:
    """Unless power says so too."""
    assert worked_seconds(vitals(0.1, 80.0), 400.0, opened=False) == 0.0
    assert worked_seconds(vitals(0.1, 100.0), 400.0, opened=False) == pytest.approx(0.2)


def test_zeros_are_believed_for_a_moment_and_then_not(caplog: pytest.LogCaptureFixture) -> None:
    """One line, one state, one failure; and when something counts again, one line more."""
    caplog.set_level("INFO")
    journal = Journal("GPU 0")
    dead = Dead(journal)
    found = []
    for now in range(10):
        found.append(dead.read(DEAD, float(now), working=True))
        journal.log_changes()

    assert found == [True] * 3 + [False] * 7
    assert journal.states == {"gpm": "implausible"}
    assert journal.failures == {"gpm": 1}
    assert dead.read(ALIVE, 10.0, working=True)
    journal.log_changes()
    assert journal.states == {}
    assert caplog.messages == [
        "GPU 0 cannot be read in part: gpm (it reads 0 while utilization and power say that the "
        "GPU works)",
        "GPU 0: can be read again: gpm",
    ]


def test_rest_is_no_sign_of_life() -> None:
    """At rest, counters that stand still read what true ones read."""
    dead = Dead(Journal("GPU 0"))
    for now in range(10):
        dead.read(DEAD, float(now), working=True)
    later = ((DEAD, False), (DEAD, True), (ALIVE, False), (DEAD, False))
    found = [dead.read(each, at, working=works) for at, (each, works) in enumerate(later, 10)]

    assert found == [False, False, True, True]


def test_old_activity_has_more_time() -> None:
    """The mean over 30 s before the work began is 0 for as long as it stands."""
    dead = Dead(Journal("GPU 0"))
    old = replace(STOCK, age_seconds=30.0)
    found = [dead.read(old, float(now), working=True) for now in range(40)]

    assert found == [True] * 33 + [False] * 7


def test_work_between_the_readings_of_a_source_counts() -> None:
    """A page that is renewed every half minute, each time in a pause of the work."""
    dead, found = Dead(Journal("GPU 0")), []
    for now in range(1, 181):
        dead.work(float(now % 3 > 0))
        if now % 30 == 0:
            found.append(dead.believed("dcgm", STOCK, float(now)))
    assert found == [True, True, False, False, False, False]


def test_a_little_work_may_be_rounded_away() -> None:
    """A kernel of 20 ms every half minute is 0.0007 of it."""
    dead = Dead(Journal("GPU 0"))
    found = [dead.read(STOCK, 30.0 * turn, working=True, step=0.02) for turn in range(5000)]
    assert all(found)


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([DEAD, ALIVE]), st.floats(0.1, 2.0)), max_size=60
    )
)
def test_nothing_is_refused_without_a_long_contradiction(
    reads: list[tuple[bool, Activity, float]],
) -> None:
    """Neither work that begins or ends, nor an idle GPU: three seconds since the last sign of life,
    and three readings."""
    dead = Dead(Journal("GPU 0"))
    now, contradicted, count = 0.0, 0.0, 0
    for working, activity, step in reads:
        now += step
        contradicted, count = contradicted + step * working, count + 1
        if activity is ALIVE:
            contradicted, count = 0.0, 0
        if not dead.read(activity, now, working=working, step=step):
            assert contradicted >= 3.0
            assert count >= 3


def test_a_source_that_skips_a_read_stays() -> None:
    """Nothing is published for that interval rather than another source's value."""
    bench = Bench()
    bench.read()
    bench.first.answering = set()

    for _ in range(SILENT_READS - 1):
        found = bench.read()
        assert (found.sources, found.activities) == ({WHOLE: "first"}, {})
