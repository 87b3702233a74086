# SPDX-License-Identifier: Apache-2.0
"""The source `dcgm` over a page: when it scrapes, which samples it keeps, how it reports faults."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from exporter.exposition.dcgm import NAMES, Names
from exporter.exposition.dcgm.page import DcgmPage
from exporter.model.readers import CounterState
from exporter.model.reading import Activity, Device, Instance
from exporter.sources.counters.child_counters import ChildCounters
from exporter.sources.dcgm.dcgm_counters import (
    EMPTY_SECONDS,
    TOO_OFTEN,
    USUAL_URL,
    PageSource,
    prepare,
)
from exporter.sources.dcgm.page import GpuRows, NotDcgm, parse
from exporter.sources.dcgm.renewal import LOOK_SECONDS
from exporter.sources.dcgm.scrape import NothingThere, ScrapeFailed, Target
from exporter.sources.interface import CounterOptions, OpenedGpu
from exporter.sources.reading_state import Journal
from tests import snapshots
from tests.clocks import ManualClock
from tests.sources.dcgm.pages import FULL, OTHER, READINGS, STOCK, UUID, Rows, page
from tests.sources.dcgm.turns import Turns

URL = "http://monitor:9400/metrics"
REFUSED = NothingThere("connection refused")


class Exporter:
    """A dcgm-exporter that renews its page every `interval_seconds`, on the test's clock."""

    def __init__(self, clock: ManualClock, interval_seconds: float, *gpus: Rows) -> None:
        self.clock = clock
        self.interval = interval_seconds
        self.gpus = gpus or (Rows(FULL),)
        self.failure: Exception | None = None
        self.scrapes: list[float] = []
        self.stamps = False

    def get(self, target: Target) -> str:
        self.target = target
        self.scrapes.append(self.clock.monotonic())
        if self.failure is not None:
            raise self.failure
        renewed = self.clock.monotonic() // self.interval
        stamp = int((self.clock.time() - self.clock.monotonic() % self.interval) * 1000)
        readings = READINGS | {"energy": renewed}
        return page(
            *(
                rows._replace(readings=readings, timestamp_ms=stamp if self.stamps else None)
                for rows in self.gpus
            )
        )


class Bench:
    """The source, one GPU that wants it, and a round every second."""

    def __init__(
        self,
        interval_seconds: float = 1.0,
        *gpus: Rows,
        url: str | None = URL,
        shares: tuple[int | None, ...] = (None,),
        poll_seconds: float = 1.0,
    ) -> None:
        self.clock = ManualClock(monotonic_seconds=1000.25)
        self.exporter = Exporter(self.clock, interval_seconds, *gpus)
        options = CounterOptions(interval_seconds=poll_seconds, dcgm_url=url)
        self.poll = poll_seconds
        self.source = PageSource(options, self.clock, self.exporter.get, lambda: self.cpu)
        self.cpu = 0.0
        self.turns = Turns(self.source, self.clock)
        self.journal = Journal("GPU 0")
        self.better = False
        self.gpu = OpenedGpu(
            None,
            Device(index=0, uuid=UUID, name="A100"),
            shares,
            self.journal,
            better=lambda: self.better,
        )
        self.counters = self.source.open(self.gpu)

    def round(self, count: int = 1) -> Mapping[int | None, Activity]:
        """What the last of so many rounds gives; the thread has its turns meanwhile."""
        for _ in range(count):
            self.turns.advance(self.poll)
            self.journal.now = self.clock.monotonic()
            found = self.counters.read(self.journal.now)
            self.journal.log_changes()
        return found

    @property
    def state(self) -> str | None:
        return self.journal.states.get("dcgm")


def told(bench: Bench) -> CounterState | None:
    """The state of the source, without how long its last read took."""
    state = bench.source.state
    return None if state is None else replace(state, read_seconds=None)


@pytest.fixture(autouse=True)
def _warnings_only(caplog: pytest.LogCaptureFixture) -> None:
    """As without configuration; other tests may have set the level of the root logger."""
    caplog.set_level(logging.WARNING)


def test_a_page_that_is_renewed_every_second_is_integrated() -> None:
    """Totals count from the second renewal on, when the age of the rows is known."""
    bench = Bench()

    integrable = [[each.integrable for each in bench.round().values()] for _ in range(8)]

    assert integrable == [[], [], *[[False]] * 4, [True], [True]]
    (found,) = bench.round().values()
    assert (found.source, found.seconds, found.sm, found.tensor) == ("dcgm", 1.0, 0.88, 0.41)
    assert found.pcie_transmit_bytes == 1.5e9
    assert bench.state is None
    assert told(bench) == CounterState(up=True)


@pytest.mark.parametrize(("interval", "apart"), [(0.5, 0.2), (1.0, 0.4), (2.0, 0.8), (30.0, 1.0)])
@pytest.mark.parametrize("poll", [0.1, 1.0, 30.0])
def test_a_page_is_read_as_often_as_it_is_renewed(
    interval: float, apart: float, poll: float
) -> None:
    """It is scraped 2.5 times per renewal, at least every second, whatever the poll interval."""
    bench = Bench(interval, poll_seconds=poll)
    bench.round(round(90 / poll))
    bench.exporter.scrapes.clear()
    bench.round(round(30 / poll))

    assert len(bench.exporter.scrapes) == pytest.approx(30 / apart, rel=0.1)


def test_a_page_that_is_renewed_more_often_than_it_can_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One log line and no counters; they return when the page is renewed less often."""
    bench = Bench(0.05)
    bench.round(60)

    assert bench.round() == {}
    assert bench.state == "unreachable"
    assert caplog.messages == [
        f"{URL}: no counters of DCGM: {TOO_OFTEN}",
        "GPU 0 cannot be read in part: dcgm (unreachable)",
    ]
    bench.exporter.interval = 1.0
    bench.round(10)
    (found,) = bench.round().values()
    assert found.integrable
    assert bench.state is None


def test_reading_the_page_takes_a_small_part_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer a scrape takes, the less often the page is scraped."""
    bench = Bench()

    def parsed(text: str) -> dict[str, GpuRows]:
        bench.cpu += 0.5
        bench.clock.advance(0.5)
        return parse(text)

    monkeypatch.setattr("exporter.sources.dcgm.dcgm_counters.parse", parsed)
    began = bench.clock.monotonic()
    bench.round(300)

    assert bench.cpu <= 0.05 * (bench.clock.monotonic() - began) + 0.5
    state = bench.source.state
    assert state is not None
    assert state.read_seconds == pytest.approx(0.5)


def test_a_slow_page_is_not_parsed_every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is parsed once per renewal; a page without fields of the GPU is scraped rarely."""
    parsed: list[str] = []

    def parsing(text: str) -> dict[str, GpuRows]:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr("exporter.sources.dcgm.dcgm_counters.parse", parsing)
    slow = Bench(30.0)
    slow.round(100)
    parsed.clear()
    slow.round(60)
    assert len(parsed) == 2
    bare = Bench(1.0, Rows({}))
    bare.round(40)

    assert len(bare.exporter.scrapes) == pytest.approx(40 / EMPTY_SECONDS, abs=1)


def test_timestamps_give_the_age() -> None:
    """They give it before the first renewal; timestamps in the future are ignored."""
    bench = Bench(30.0)
    bench.exporter.stamps = True
    bench.round(2)
    (found,) = bench.round().values()
    assert found.age_seconds == pytest.approx(bench.clock.monotonic() % 30.0 - LOOK_SECONDS, abs=1)

    ahead = Bench(1.0)
    ahead.exporter.stamps = True
    ahead.clock.step_wall(-60.0)
    stamp = ahead.clock.time() + 60.0
    ahead.exporter.clock = ManualClock(stamp, ahead.clock.monotonic())
    ahead.round(2)
    (found,) = ahead.round().values()
    assert found.age_seconds is not None
    assert found.age_seconds >= 30.0


def test_a_page_that_is_no_longer_renewed_is_no_reading() -> None:
    """After three renewal intervals without a change the rows are one failure, and no reading."""
    bench = Bench()
    bench.round(10)
    bench.exporter.interval = 1e9

    bench.round(3)
    assert bench.state is None
    assert bench.round(4) == {}
    assert not bench.counters.measures(None)
    assert bench.state == "unreachable"
    bench.round(20)
    assert told(bench) == CounterState(up=True, failures_total=1)
    bench.exporter.interval = 1.0
    assert bench.round(3) != {}
    assert bench.state is None


BLANK = Rows({1001: float("nan")}, {})
BARE = Rows({}, {"energy": 1.0})


@pytest.mark.parametrize(
    ("interval", "rows", "rounds"),
    [(1e9, Rows(FULL), 8), (1e9, BLANK, 8), (1e9, BARE, 8), (30.0, Rows(FULL), 30)],
)
def test_after_a_pause_it_is_integrated_again_soon(
    interval: float, rows: Rows, rounds: int
) -> None:
    """The pause, or a longer interval before, is not taken for the page's renewal interval."""
    bench = Bench()
    bench.round(10)
    bench.exporter.interval, bench.exporter.gpus = interval, (rows,)
    bench.round(100)
    assert bench.counters.measures(None) == (interval == 30.0)
    bench.exporter.interval, bench.exporter.gpus = 1.0, (Rows(FULL),)
    bench.round(rounds)

    (found,) = bench.round().values()
    assert found.integrable


def test_each_instance_has_its_own() -> None:
    """Rows of the board are not used for its instances, nor the other way round."""
    mine = (Rows({1001: 0.9}), Rows(STOCK, gpu_instance=1), Rows({1001: 0.1}, gpu_instance=5))
    bench = Bench(1.0, *mine, shares=(1, 5, 6))
    found = bench.round(5)

    assert {share: activity.engine for share, activity in found.items()} == {
        1: pytest.approx(0.93),
        5: pytest.approx(0.1),
    }
    assert bench.journal.states == {"dcgm_instance_6": "unsupported"}
    bench.exporter.gpus = (*mine, Rows(STOCK, gpu_instance=6))
    bench.round(3)
    assert bench.journal.states == {}

    whole = Bench(1.0, Rows(STOCK, gpu_instance=1))
    assert whole.round(5) == {}
    assert whole.state == "unsupported"


def test_samples_of_a_replaced_gpu_instance_are_dropped() -> None:
    """An instance that reuses a number has no sample until the page is renewed."""
    bench = Bench(10.0, Rows(STOCK, gpu_instance=1), shares=(1,))
    bench.round(25)
    assert bench.counters.measures(1)
    same = bench.source.open(bench.gpu)
    assert same.measures(1)

    anew = Instance(1, 0, "1g.10gb", "MIG-anew")
    device = replace(bench.gpu.device, mig=True, instances=(anew,))
    bench.gpu = replace(bench.gpu, device=device)
    bench.counters = bench.source.open(bench.gpu)
    assert not bench.counters.measures(1)
    assert bench.round() == {}
    assert bench.round(12).keys() == {1}


@pytest.mark.parametrize(
    ("failure", "lines"),
    [
        (REFUSED, []),
        (NotDcgm("no DCGM"), [f"{USUAL_URL}: no counters of DCGM: no DCGM"]),
        (ScrapeFailed("it answers 404"), [f"{USUAL_URL}: no counters of DCGM: it answers 404"]),
    ],
)
def test_nothing_or_something_else_at_the_usual_address(
    caplog: pytest.LogCaptureFixture, failure: Exception, lines: list[str]
) -> None:
    """No state and no failure; one log line if anything is there; the retries back off to 60 s."""
    caplog.set_level(logging.INFO)
    bench = Bench(url=None)
    bench.exporter.failure = failure
    bench.round(600)

    assert bench.exporter.target == Target(USUAL_URL, procfs=Path("/proc"))
    assert (bench.state, bench.source.state) == (None, None)
    gaps = [b - a for a, b in pairwise(bench.exporter.scrapes)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == 60.0
    assert caplog.messages == lines


@pytest.mark.parametrize("url", [None, URL])
@pytest.mark.parametrize(
    "failure",
    [REFUSED, ScrapeFailed("no whole answer within 1 s"), NotDcgm("its page is bad"), KeyError(1)],
)
def test_a_page_that_was_there_and_is_gone(
    caplog: pytest.LogCaptureFixture, url: str | None, failure: Exception
) -> None:
    """One log line, one state, counted failures; the last sample is kept for some rounds, and the
    counters return within 10 s."""
    caplog.set_level(logging.INFO)
    bench = Bench(url=url)
    bench.round(5)
    caplog.clear()
    before = len(bench.exporter.scrapes)
    bench.exporter.failure = failure

    assert bench.round() != {}
    assert bench.state == "unreachable"
    assert bench.round(10) == {}
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"{url or USUAL_URL}: no counters of DCGM: ")
    state = bench.source.state
    assert state is not None
    assert (state.up, state.failures_total) == (False, len(bench.exporter.scrapes) - before)
    bench.round(100)
    bench.exporter.failure = None
    assert bench.round(9) != {}
    assert bench.state is None
    assert len(caplog.messages) == 2


def test_a_configured_page_that_was_never_there(caplog: pytest.LogCaptureFixture) -> None:
    """It is a failure from the first scrape on."""
    bench = Bench()
    bench.exporter.failure = REFUSED
    bench.round(30)

    assert bench.state == "unreachable"
    assert len(caplog.messages) == 1
    assert max(bench.exporter.scrapes) >= bench.clock.monotonic() - 5.0


@pytest.mark.parametrize("path", ["", "/"])
def test_a_url_without_a_path_is_that_of_the_exporter(path: str) -> None:
    """Its page is /metrics; user and password are not part of the address."""
    url = f"http://monitor:9400{path}"
    options = CounterOptions(dcgm_url=url, dcgm_user="me", dcgm_password="secret")
    clock = ManualClock()
    exporter = Exporter(clock, 1.0)
    source = PageSource(options, clock, exporter.get)
    source.open(replace(Bench().gpu, journal=Journal("GPU 0"))).read(0.0)
    clock.advance(-100.0)
    source.step()

    assert exporter.target == Target(URL, "me", "secret")


@pytest.mark.parametrize("rows", [Rows({}), Rows(STOCK, uuid=OTHER), Rows({1009: 1e9})])
def test_a_gpu_that_the_page_does_not_measure(caplog: pytest.LogCaptureFixture, rows: Rows) -> None:
    """The GPU's state says so; the source is up, and nothing is logged."""
    bench = Bench(1.0, rows)

    assert bench.round(5) == {}
    assert bench.state == "unsupported"
    assert told(bench) == CounterState(up=True)
    assert caplog.messages == []


def test_a_page_of_blanks_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """DCGM writes blanks while it is paused: one log line, one state, and the source is down."""
    bench = Bench(1.0, Rows({1001: float("nan"), 1004: 2.0**63}))

    assert bench.round(5) == {}
    assert bench.state == "unreachable"
    assert told(bench) == CounterState(up=False, failures_total=3)
    assert caplog.messages == [
        f"{URL}: no counters of DCGM: its profiling fields have no values: is profiling paused?"
    ]
    bench.exporter.gpus = (Rows(FULL),)
    assert bench.round(8) != {}
    assert bench.state is None
    assert told(bench) == CounterState(up=True, failures_total=3)


def test_a_gpu_of_blanks_beside_one_of_values(caplog: pytest.LogCaptureFixture) -> None:
    """The failure is counted and logged once; the source is up."""
    bench = Bench(1.0, Rows({1001: float("nan")}), Rows(FULL, uuid=OTHER))
    device = replace(bench.gpu.device, uuid=OTHER)
    other = replace(bench.gpu, device=device, journal=Journal("GPU 1"))
    rest = bench.source.open(other)
    for _ in range(30):
        other.journal.now = bench.clock.monotonic()
        rest.read(other.journal.now)
        bench.round()

    assert bench.state == "unreachable"
    assert told(bench) == CounterState(up=True, failures_total=1)
    assert caplog.messages == ["GPU 0 cannot be read in part: dcgm (unreachable)"]


def test_a_hostengine_is_asked_instead_of_a_page() -> None:
    """With --dcgm.host the source is a child process, which is not started yet."""
    clock = ManualClock()

    assert isinstance(prepare(CounterOptions(), clock), PageSource)
    found = prepare(CounterOptions(dcgm_url=URL, dcgm_host="localhost:5555"), clock)
    assert isinstance(found, ChildCounters)
    assert found.state is None


def test_an_exporter_that_is_started_anew_with_a_shorter_interval() -> None:
    """Its counters are integrated again within 30 s."""
    bench = Bench(30.0)
    bench.round(100)
    bench.exporter.interval = 1.0
    bench.round(30)

    (found,) = bench.round().values()
    assert found.integrable


@pytest.mark.parametrize(("url", "state"), [(URL, "unreachable"), (None, None)])
@pytest.mark.parametrize("names", NAMES)
def test_our_own_page_is_refused(
    names: Names,
    url: str | None,
    state: str | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One log line, whether the page is configured or found; nothing on it is a reading."""
    gpu = snapshots.h100_training()
    node = snapshots.snapshot(replace(gpu, device=replace(gpu.device, uuid=UUID)))
    own = DcgmPage(names, "node-1").render(node).decode()
    assert f'DCGM_FI_PROF_PCIE_TX_BYTES{{gpu="0",UUID="{UUID}"' in own
    monkeypatch.setattr(Exporter, "get", lambda *_: own)
    bench = Bench(url=url)

    assert bench.round(20) == {}
    assert bench.state == state
    reason = "its page was made by a roofline-exporter, not by DCGM"
    assert caplog.messages == [f"{url or USUAL_URL}: no counters of DCGM: {reason}"]


def test_fields_that_vanish_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    """DCGM leaves its rows out while another program has the GPU's counters."""
    bench = Bench()
    bench.round(5)
    bench.exporter.gpus = (Rows({}),)
    bench.round(2)
    assert bench.state == "unsupported"
    assert bench.round() == {}
    bench.exporter.gpus = (Rows(FULL),)
    bench.round(8)

    assert bench.state is None
    assert caplog.messages == ["GPU 0 cannot be read in part: dcgm (unsupported)"]
