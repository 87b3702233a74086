# SPDX-License-Identifier: Apache-2.0
"""A recording that is played gives what was measured when it was made."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from exporter.cli import config
from exporter.cli.main import main
from exporter.cli.readers import as_played, choose_readers, node_clock
from exporter.errors import ConfigError
from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.model import reading as data
from exporter.model.readers import Readers
from exporter.model.reading import (
    Activity,
    Board,
    Device,
    Health,
    Reading,
    ShareReading,
    SlotReport,
    Vitals,
    XidRecord,
)
from exporter.model.snapshot import Snapshot
from exporter.publisher import Publisher, Rules
from exporter.sources.recording import LineFile, Recording, Tick
from exporter.sources.recording.lines import encode
from exporter.sources.recording.recording import Header, header_line, iso_time, recorded
from exporter.sources.recording.replay import TOTALS, FastClock, Replay
from tests.clocks import ManualClock
from tests.recordings import SPECS, TICKS, Node, recorder_of

H100 = Device(
    index=0,
    uuid="GPU-h100",
    name="NVIDIA H100 80GB HBM3",
    pci_device_id=0x2330,
    compute_capability=(9, 0),
)
SAMPLE = Path(__file__).parent.parent.parent / (
    "data/recordings/fake-h100x2__580.95.05__duty-cycle.jsonl.gz"
)
RECORDED_AT = 1_000_000.0
PLAYED_AT = 2_000_000.0


class Tee:
    """Readers that keep the reports of a round until the next one."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._readers, name)

    def round(self, wait_seconds: float) -> None:
        self._readers.round(5.0)
        reports = self._readers.reports()
        xids = {uuid: dict(found) for uuid, found in self._readers.xids().items()}
        self.reports, self.xids = lambda: reports, lambda: xids


def rows(page: bytes) -> dict[str, float]:
    """The series of a page that do not depend on when and by whom they were read."""
    found = {}
    for line in page.decode().splitlines():
        if line.startswith("#") or re.match(r"process_|python_|roofline_exporter_build", line):
            continue
        series, _, value = line.rpartition(" ")
        if "_timestamp_seconds" not in series.partition("{")[0]:
            found[re.sub(r'source="(nvml|replay)"', 'source="driver"', series)] = float(value)
    return found


def test_a_replay_gives_the_metrics_of_the_live_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page of the replay equals that of the live run, tick by tick."""
    node = Node(tmp_path / "driver")
    node.fake.activate(monkeypatch)
    node.start(2)
    file = tmp_path / "live.jsonl.gz"
    live: Any = Tee(node.fleet)
    live.round(5.0)
    recorder = recorder_of(live, node.clock, file, 1.0)
    pages = Pages(RenderOptions())
    publisher = Publisher(live, SPECS, Rules(), node.clock, (pages.publish,))
    seen = []
    for _ in range(TICKS):
        node.advance(1.0)
        publisher.tick()
        recorder.take(live)
        seen.append(rows(pages.page("text-1.0.0", False)))
    recorder.end()
    node.fleet.stop()

    clock = ManualClock(PLAYED_AT, 5000.0)
    replay = Replay(Recording(file), clock)
    pages = Pages(RenderOptions())
    publisher = Publisher(replay, SPECS, Rules(), clock, (pages.publish,))
    for tick, expected in enumerate(seen):
        publisher.tick()
        assert rows(pages.page("text-1.0.0", False)) == expected, f"tick {tick}"
        clock.advance(1.0)
    up = {series: value for series, value in seen[-1].items() if series.startswith("gpu_up")}
    assert sorted(up.values()) == [0.0, 1.0]
    assert any(series.startswith("gpu_saturation_ratio") for series in seen[-1])


# On recordings written here.


def reading(second: float) -> Reading:
    activity = Activity(source="gpm", seconds=1.0, sm=0.5, engine=0.5)
    return Reading(
        device=H100,
        timestamp_seconds=RECORDED_AT + second,
        monotonic_seconds=second,
        vitals=Vitals(power_watts=300.0, energy_joules=300.0 * second),
        board=Board(pcie_replays_total=int(second)),
        shares=(ShareReading(activity=activity, counters="gpm"),),
        health=Health(ecc_errors_total={"corrected": {"dram": int(second)}}),
        read_seconds={"nvml": 0.5},
    )


def written(
    path: Path,
    ticks: Iterable[tuple[float, Sequence[SlotReport]]],
    xids: Mapping[str, Mapping[int, XidRecord]] | None = None,
    interval: float = 1.0,
) -> Path:
    """Write a recording of these rounds: (seconds since its start, what was known)."""
    file = LineFile(path)
    file.write(header_line(Header("0.1", "nvml", interval, iso_time(RECORDED_AT))))
    for seconds, reports in ticks:
        gpus = tuple(recorded(report, 0.0) for report in reports)
        file.write(encode(Tick(seconds, gpus, xids or {}, {"nvml": 1}, None, 2)))
    file.close()
    return path


def reports_of(found: Reading | None, problem: str | None = None) -> list[SlotReport]:
    return [SlotReport(0, H100, found, problem, {"nvml": 1})]


def ticks_at(*seconds: float, age: float = 0.0) -> list[tuple[float, list[SlotReport]]]:
    """Rounds in which the GPU was read, so long before."""
    return [(second, reports_of(reading(second - age))) for second in seconds]


@pytest.fixture(name="steady")
def _steady(tmp_path: Path) -> Path:
    """Five seconds of one GPU."""
    xids = {H100.uuid: {31: XidRecord(2, RECORDED_AT + 1)}}
    return written(tmp_path / "steady.jsonl", ticks_at(1.0, 2.0, 3.0, 4.0, 5.0), xids)


class Stage:
    """A replay and a publisher, ticked by hand."""

    def __init__(self, path: Path, *, speed: float = 1.0, loop: bool = False) -> None:
        self.real = ManualClock(PLAYED_AT, 5000.0)
        clock = FastClock(self.real, speed)
        recording = Recording(path)
        self.interval = recording.header.interval_seconds
        self.speed = speed
        self.replay = Replay(recording, clock, speed=speed, loop=loop)
        rules = Rules(interval_seconds=self.interval)
        self.publisher = Publisher(self.replay, SPECS, rules, clock)

    def tick(self) -> Snapshot:
        snapshot = self.publisher.tick()
        self.real.advance(self.interval / self.speed)
        return snapshot


def energies(snapshots: Iterable[Snapshot]) -> list[float | None]:
    return [snapshot.gpus[0].totals.energy_joules for snapshot in snapshots]


def test_the_end_makes_gpus_stale_and_says_why(
    steady: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After the last tick nothing is invented; its folder is not for everybody who may look."""
    caplog.set_level(logging.INFO)
    stage = Stage(steady)
    snapshots = [stage.tick() for _ in range(10)]

    assert [snapshot.gpus[0].up for snapshot in snapshots] == [True] * 7 + [False] * 3
    assert snapshots[-1].problem == f"the recording {steady.name} has ended"
    assert caplog.messages == [f"the recording {steady.name} has ended"]


def test_counters_go_on_when_it_starts_over(steady: Path) -> None:
    """No total of the driver falls."""
    stage = Stage(steady, loop=True)
    snapshots = [stage.tick() for _ in range(16)]
    gpus = [snapshot.gpus[0] for snapshot in snapshots]

    assert all(gpu.up for gpu in gpus)
    one_pass = [300.0, 600.0, 900.0, 1200.0, 1500.0]
    assert energies(snapshots)[:11] == [
        *one_pass,
        *(total + 1200.0 for total in one_pass),
        2700.0,
    ]
    boards = [gpu.board.pcie_replays_total for gpu in gpus if gpu.board is not None]
    ecc = [gpu.health.ecc_errors_total["corrected"]["dram"] for gpu in gpus if gpu.health]
    assert boards == ecc == [1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 9, 10, 11, 12, 13, 13]
    assert [gpu.xids[31].count for gpu in gpus] == [2] * 5 + [4] * 5 + [6] * 5 + [8]
    failures = [snapshot.sources["replay"].failures_total for snapshot in snapshots]
    assert failures == [3] * 5 + [6] * 5 + [9] * 5 + [12]
    sm = [gpu.shares[0].totals.sm_active_seconds for gpu in gpus]
    assert sm == [0.5 * count for count in range(1, 17)]


def test_every_total_of_the_drivers_is_rebased() -> None:
    """A field that a driver counts in, and that this table forgets, would fall on a loop."""
    for cls, names in TOTALS.items():
        totals = {field.name for field in dataclasses.fields(cls) if "_total" in field.name}
        totals -= {"bar1_total_bytes"}
        assert totals <= set(names) <= {field.name for field in dataclasses.fields(cls)}
    assert {data.Vitals, data.Board, data.Health} == set(TOTALS)


def test_a_total_that_fell_in_the_recording_falls_in_the_replay(tmp_path: Path) -> None:
    """A driver that started over is shown as it was."""
    ticks = []
    for second, total in enumerate((500.0, 600.0, 0.0, 100.0), 1):
        vitals = Vitals(energy_joules=total)
        ticks.append((second, reports_of(dataclasses.replace(reading(second), vitals=vitals))))
    stage = Stage(written(tmp_path / "reset.jsonl", ticks), loop=True)

    assert energies(stage.tick() for _ in range(6)) == [500.0, 600.0, 0.0, 100.0, 100.0, 200.0]


def test_a_reading_keeps_its_age(tmp_path: Path) -> None:
    """A GPU that answered late was late; intervals are between readings, not between ticks."""
    ticks = ticks_at(1.0, age=0.25) + ticks_at(2.0) + ticks_at(3.0, age=0.5)
    stage = Stage(written(tmp_path / "late.jsonl", ticks))
    shown = []
    for _ in ticks:
        stage.replay.round(0.5)
        found = stage.replay.reports()[0].reading
        assert found is not None
        shown.append((stage.real.time() - found.timestamp_seconds, found.monotonic_seconds))
        stage.real.advance(1.0)

    assert shown == [(0.25, 4999.75), (0.0, 5001.0), (0.5, 5001.5)]


@pytest.mark.parametrize("speed", [0.5, 2.0, 7.0])
def test_at_another_speed_every_snapshot_is_the_same(steady: Path, speed: float) -> None:
    """Only Unix time runs as it does: counters, rates and shares are those of speed 1."""

    def shown(speed: float) -> list[object]:
        stage = Stage(steady, speed=speed)
        found: list[object] = []
        for _ in range(5):
            gpu = stage.tick().gpus[0]
            share = gpu.shares[0]
            totals = dataclasses.replace(
                share.totals, last_busy_timestamp_seconds=None, seen_busy_timestamp_seconds=None
            )
            found.append((gpu.up, gpu.vitals, gpu.totals, totals, share.limiter))
        return found

    assert shown(speed) == shown(1.0)


def test_unix_time_is_true_at_any_speed(steady: Path) -> None:
    """A reading is stamped with the time at which it is shown; so is an Xid, by its age."""
    stage = Stage(steady, speed=4.0)
    gpus = [stage.tick().gpus[0] for _ in range(3)]

    stamps = [gpu.last_read_timestamp_seconds for gpu in gpus]
    assert stamps == pytest.approx([PLAYED_AT, PLAYED_AT + 0.25, PLAYED_AT + 0.5])
    assert [gpu.xids[31].last_timestamp_seconds for gpu in gpus] == pytest.approx([PLAYED_AT] * 3)


def test_ticks_are_played_one_by_one_whatever_the_jitter(tmp_path: Path) -> None:
    """A recorder that was early or late by a third of an interval skips no tick here."""
    jitter = itertools.cycle((0.0, 0.3, -0.3, 0.2, -0.1))
    seconds = [second + next(jitter) for second in range(1, 31)]
    stage = Stage(written(tmp_path / "jitter.jsonl", ticks_at(*seconds)))
    shown = energies(stage.tick() for _ in range(30))

    assert shown == [300.0 * second for second in seconds]


def test_a_late_publisher_loses_nothing(steady: Path) -> None:
    """A machine that stops for a while goes on where it was."""
    stage = Stage(steady)
    first = stage.tick()
    stage.real.advance(60.0)
    rest = [stage.tick() for _ in range(4)]

    assert energies([first, *rest]) == [300.0, 600.0, 900.0, 1200.0, 1500.0]
    assert all(snapshot.gpus[0].up for snapshot in rest)


def test_a_hole_in_the_recording_is_a_hole(tmp_path: Path) -> None:
    """A GPU that was not read for ten seconds is stale for as long."""
    stage = Stage(written(tmp_path / "hole.jsonl", ticks_at(1.0, 2.0, 12.0, 13.0)))
    up = [stage.tick().gpus[0].up for _ in range(13)]

    assert up == [True] * 4 + [False] * 7 + [True] * 2


def test_an_unchanged_reading_stays_the_same_object(tmp_path: Path) -> None:
    """What later stages know by identity, they know of a replay too."""
    first, second = reading(1.0), reading(3.0)
    same = dataclasses.replace(second, board=first.board, health=first.health)
    ticks = [(at, reports_of(found)) for at, found in ((1.0, first), (2.0, first), (3.0, same))]
    stage = Stage(written(tmp_path / "same.jsonl", ticks))
    shown = []
    for _ in ticks:
        stage.tick()
        shown.append(stage.replay.reports()[0].reading)

    assert shown[0] is shown[1]
    assert shown[2] is not shown[1]
    assert shown[0] is not None
    assert shown[2] is not None
    assert shown[2].device is shown[0].device
    assert shown[2].board is shown[0].board
    assert shown[2].health is shown[0].health


@pytest.mark.parametrize("kept", [0.6, 0.8, 0.95])
@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_a_truncated_recording_plays_up_to_the_damage_and_says_so(
    tmp_path: Path, kept: float, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that was cut in transit is not lost."""
    whole = gzip.decompress(SAMPLE.read_bytes())
    content = SAMPLE.read_bytes() if suffix.endswith("gz") else whole
    path = tmp_path / f"cut.{suffix}"
    path.write_bytes(content[: int(len(content) * kept)])
    stage = Stage(path)
    snapshots = [stage.tick() for _ in range(40)]
    played = sum(1 for s in snapshots if s.gpus and s.gpus[0].up) - 2

    assert 0 < played < 30
    (line,) = [message for message in caplog.messages if "plays up to there" in message]
    number = re.match(rf"{re.escape(str(path))}:(\d+): .* cut off; ", line)
    assert number is not None
    assert int(number[1]) == played + 2
    assert snapshots[-1].problem is not None
    assert snapshots[-1].problem.startswith(f"the recording has ended: {path.name}:{number[1]}: ")


def test_damage_is_logged_once_when_looping(
    tmp_path: Path, steady: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each pass ends there, but a log line at each would say nothing new."""
    path = tmp_path / "broken.jsonl"
    path.write_text(steady.read_text() + '{"seconds": "soon"}\n')
    stage = Stage(path, loop=True)
    assert all(stage.tick().gpus[0].up for _ in range(20))

    assert caplog.messages == [
        f"{path}:7: seconds: expected a valid number; the recording plays up to there"
    ]


def test_a_recording_without_a_tick_ends_at_once_even_when_looping(tmp_path: Path) -> None:
    """It does not turn in a circle for ever."""
    stage = Stage(written(tmp_path / "empty.jsonl", []), loop=True)

    problem = stage.tick().problem
    assert problem is not None
    assert problem.endswith("has ended; it holds no readings")


def test_a_file_that_vanishes_ends_the_replay(steady: Path) -> None:
    """The next pass cannot be read; the daemon lives on."""
    stage = Stage(steady, loop=True)
    for _ in range(5):
        stage.tick()
    steady.unlink()
    snapshots = [stage.tick() for _ in range(4)]

    assert not snapshots[-1].gpus[0].up
    assert snapshots[-1].problem is not None
    assert "cannot be read: No such file or directory" in snapshots[-1].problem


# In the daemon


def test_a_replay_takes_the_place_of_the_driver(
    steady: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so first; the interval is the recording's, whatever was asked for."""
    caplog.set_level(logging.INFO)
    flags = ["--replay", str(steady), "--replay.speed=2", "--poll.interval=5s"]
    settings = as_played(config.load(flags, {}))
    readers = choose_readers(settings, SPECS, node_clock(settings))

    assert isinstance(readers, Replay)
    assert settings.poll_interval_seconds == 1.0
    assert caplog.messages == [
        "--poll.interval: 5s is ignored, a recording has its own interval",
        f"REPLAYING {steady} (recorded 1970-01-12T13:46:40+00:00 from source nvml, 0 GPUs, "
        "every 1 s) at speed 2",
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--demo"], "--replay: expected no --demo beside it"),
        (["--replay.speed=6"], "--replay.speed: expected at most 5 for "),
        (["--replay=/nowhere"], "/nowhere: cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_played_is_refused(tmp_path: Path, flags: list[str], message: str) -> None:
    """In one line, before anything is served."""
    path = written(tmp_path / "fast.jsonl", ticks_at(1.0), interval=0.1)
    settings = config.load(["--replay", str(path), *flags], {})
    with pytest.raises(ConfigError) as caught:
        as_played(settings)

    assert str(caught.value).startswith(message)


@pytest.mark.usefixtures("restored_logging")
def test_once_prints_a_page_of_a_recording(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Marked as replayed."""
    code = main(["once", "--replay", str(SAMPLE), "--log.level=error"])
    page = capfdbinary.readouterr().out.decode()

    assert code == 0
    assert len(re.findall(r'^gpu_info{.*source="replay"} 1', page, re.MULTILINE)) == 2
    assert "NVIDIA H100 80GB HBM3" in page
