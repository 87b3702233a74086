# SPDX-License-Identifier: Apache-2.0
"""``record`` writes a file that can be played, however it ends."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from exporter import __version__
from exporter.cli.command import on_stop
from exporter.cli.record import RecordedRounds, check_path, record
from exporter.errors import ConfigError, ExporterError
from exporter.model.readers import NO_COUNTER_STATES
from exporter.model.reading import Board, Device, Reading, SlotReport, Vitals, XidRecord
from exporter.sources.recording import LineFile, Recorder, Recording, WorkloadRecorder, header_of
from exporter.sources.recording.recording import Header, iso_time
from exporter.sources.simulate import Simulation, load_scenario
from tests.cli.outcomes import Outcome
from tests.clocks import ManualClock
from tests.recordings import SPECS
from tests.waiting import wait_until

H100 = Device(
    index=0,
    uuid="GPU-h100",
    name="NVIDIA H100 80GB HBM3",
    driver_version="580.95.05",
    pci_device_id=0x2330,
    compute_capability=(9, 0),
)


class Script:
    """One GPU that answers from the `answers_at`-th round on."""

    name = "nvml"
    failed_initialisations = 0
    counter_states = NO_COUNTER_STATES

    def __init__(self, clock: ManualClock, answers_at: float = 1) -> None:
        self.clock = clock
        self.answers_at = answers_at
        self.problem: str | None = None
        self.rounds = 0
        self.running = False

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def round(self, wait_seconds: float) -> None:
        assert self.running
        self.rounds += 1

    def reports(self) -> list[SlotReport]:
        now = self.clock.monotonic()
        vitals = Vitals(power_watts=300.0 + now)
        found = Reading(H100, self.clock.time(), now, vitals, Board(), ())
        return [SlotReport(0, H100, found if self.rounds >= self.answers_at else None, None, {})]

    def xids(self) -> dict[str, dict[int, XidRecord]]:
        return {}

    def devices(self) -> dict[str, int]:
        return {"nvml": 1}


class Bench:
    """A script and a clock that waiting moves."""

    def __init__(self, answers_at: float = 1) -> None:
        self.clock = ManualClock()
        self.script = Script(self.clock, answers_at)
        self.stopped = threading.Event()
        self.stop_after = float("inf")

    def wait(self, seconds: float) -> None:
        assert seconds >= 0
        self.clock.advance(seconds)
        if self.clock.monotonic() >= self.stop_after:
            self.stopped.set()

    def record(self, path: Path, length: float | None = None, **options: Any) -> str:
        rounds = RecordedRounds(cast(Any, self.script), self.clock, 1.0, self.stopped, self.wait)
        return record(rounds, SPECS, path, length, **options)


def test_it_ends_after_its_duration(tmp_path: Path) -> None:
    """One line says what was written, and the file holds it."""
    bench = Bench()
    path = tmp_path / "r.jsonl.gz"
    line = bench.record(path, 60.0)

    size = path.stat().st_size / 1e6
    assert line == f"recorded 60 ticks of 1 GPU in 59 s to {path} ({size:.2f} MB)"
    assert bench.clock.monotonic() == 160.0
    assert not bench.script.running
    played = Recording(path)
    assert played.header == Header(
        exporter=__version__,
        source="nvml",
        interval_seconds=1.0,
        started=iso_time(1_000_000.0),
        driver="580.95.05",
        devices=played.header.devices,
        specs={"GPU-h100": "h100-sxm5-80gb"},
    )
    assert [device.uuid for device in played.header.devices] == ["GPU-h100"]
    powers = [
        tick.gpus[0].reading.vitals.power_watts
        for tick in played.ticks()
        if tick.gpus[0].reading is not None
    ]
    assert powers == [400.0 + second for second in range(60)]


def test_it_ends_cleanly_when_stopped(tmp_path: Path) -> None:
    """All that was read by then is in the file, and nothing is missing at its end."""
    bench = Bench()
    bench.stop_after = 110.0
    line = bench.record(tmp_path / "r.jsonl.gz")

    assert line.startswith("recorded 10 ticks of 1 GPU in 9 s to ")
    assert len(gzip.decompress((tmp_path / "r.jsonl.gz").read_bytes()).splitlines()) == 11


def test_a_slow_round_keeps_the_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missed ticks are left out, not crowded together."""
    bench = Bench()
    slow = iter((0.0, 2.4, *[0.0] * 100))
    xids = bench.script.xids

    def slow_xids() -> dict[str, dict[int, XidRecord]]:
        bench.clock.advance(next(slow))
        return xids()

    monkeypatch.setattr(bench.script, "xids", slow_xids)
    bench.record(tmp_path / "r.jsonl", 6.0)

    lines = (tmp_path / "r.jsonl").read_text().splitlines()[1:]
    assert [json.loads(line)["seconds"] for line in lines] == [0.0, 1.0, 4.0, 5.0]


def test_it_waits_for_the_first_reading(tmp_path: Path) -> None:
    """Waking a GPU up takes seconds; the header names it all the same."""
    bench = Bench(answers_at=40)
    bench.record(tmp_path / "r.jsonl", 5.0)

    assert Recording(tmp_path / "r.jsonl").header.devices[0].uuid == "GPU-h100"


def test_without_a_gpu_nothing_is_written(tmp_path: Path) -> None:
    """One line says why, and no empty file stays behind."""
    path = tmp_path / "r.jsonl"
    bench = Bench(answers_at=float("inf"))
    with pytest.raises(ExporterError, match=r"^nothing was recorded: no GPU answers$"):
        bench.record(path)
    bench.script.problem = "libnvidia-ml.so.1 not found"
    with pytest.raises(ExporterError, match="nothing was recorded: libnvidia-ml"):
        bench.record(path)
    bench.stopped.set()
    with pytest.raises(ExporterError, match="nothing was recorded: stopped before a GPU answered"):
        bench.record(path)
    assert not path.exists()
    assert not bench.script.running


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    """Nobody loses a support case by a repeated command; --force overwrites."""
    path = tmp_path / "r.jsonl"
    path.write_text("precious")
    with pytest.raises(ConfigError, match=r"r\.jsonl: exists already; --force overwrites it$"):
        check_path(path, force=False)
    with pytest.raises(ConfigError, match=r"r\.jsonl: cannot be written: File exists$"):
        Bench().record(path, 5.0)  # it came after the check
    assert path.read_text() == "precious"
    check_path(path, force=True)
    Bench().record(path, 5.0, force=True)
    assert len(list(Recording(path).ticks())) == 5


@pytest.mark.parametrize("name", ["nowhere/r.jsonl", "."])
def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    """Before any GPU is asked."""
    with pytest.raises(ConfigError, match="expected the path of a file in a directory that exists"):
        check_path(tmp_path / name, force=False)


# A full disk


class SmallDisk:
    """A file on a disk with so much room; what no longer fits is written in part."""

    def __init__(self, file: Any, room: int) -> None:
        self._file = file
        self._room = room

    def write(self, data: memoryview) -> int:
        fits = min(len(data), self._room - self._file.tell())
        if fits <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return int(self._file.write(data[:fits]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture(name="small_disk")
def _small_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def limit(room: int) -> None:
        begin = LineFile.__init__

        def small(self: LineFile, path: Path, *, overwrite: bool = False) -> None:
            begin(self, path, overwrite=overwrite)
            self._file = SmallDisk(self._file, room)  # type: ignore[assignment]

        monkeypatch.setattr(LineFile, "__init__", small)

    return limit


@pytest.mark.parametrize("room", [1400, 1511, 2000, 2500, 4000])
@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_on_a_full_disk_the_file_stays_readable(
    tmp_path: Path, small_disk: Callable[[int], None], room: int, name: str
) -> None:
    """Up to the last line that was written, for any reader of gzip; and the message says so."""
    small_disk(room)
    path = tmp_path / name
    with pytest.raises(ExporterError) as caught:
        Bench().record(path, 3600.0)

    message = str(caught.value)
    assert message.startswith(f"{path}: No space left on device; the recording ends with the last ")
    ticks = list(Recording(path).ticks())
    assert len(ticks) > 1
    said = re.search(r"\(about (\d+) ticks", message)
    assert said is not None
    assert int(said[1]) - len(ticks) in (1, 2)
    if name.endswith(".gz"):
        assert len(gzip.decompress(path.read_bytes()).splitlines()) == len(ticks) + 1


@pytest.mark.usefixtures("restored_signals")
def test_a_disk_that_is_full_at_once_leaves_nothing_to_play(outcome: Outcome) -> None:
    """One line and exit code 1, on a device that is always full."""
    said = (
        "roofline-exporter: /dev/full: No space left on device; "
        "the recording ends with the last line that was written (nothing)\n"
    )
    words = ("record", "/dev/full", "--force", "--demo", "--log.level=error")
    assert outcome(*words) == (1, "", said)


@pytest.mark.usefixtures("restored_signals")
def test_in_the_background_only_sigterm_stops_it() -> None:
    """A script starts its background jobs with SIGINT ignored; its Ctrl-C is for another."""
    calls: list[str] = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    on_stop(lambda: calls.append("stop"))
    signal.raise_signal(signal.SIGINT)
    assert calls == []
    signal.raise_signal(signal.SIGTERM)
    assert calls == ["stop"]


# The command


@pytest.fixture(name="recording")
def _recording(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """``record`` in a process of its own."""
    words = ["record", "r.jsonl.gz", "--demo", "--poll.interval=100ms"]
    process = subprocess.Popen(
        [sys.executable, "-m", "exporter", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_cleanly(
    tmp_path: Path, recording: subprocess.Popen[str], number: signal.Signals
) -> None:
    """Exit code 0, one line on standard output, and a whole file."""
    path = tmp_path / "r.jsonl.gz"
    wait_until(lambda: path.exists() and path.stat().st_size > 1000, what="for the recording")
    recording.send_signal(number)
    out, _ = recording.communicate(timeout=10)

    assert recording.returncode == 0
    assert re.fullmatch(r"recorded \d+ ticks of 8 GPUs in \d+ s to r\.jsonl\.gz \(.* MB\)\n", out)
    header = Recording(path).header
    assert (header.source, header.interval_seconds, len(header.devices)) == ("simulate", 0.1, 8)
    assert all(len(tick.gpus) == 8 for tick in Recording(path).ticks())


# Size


@pytest.mark.parametrize(("interval", "megabytes"), [(1.0, 1), (0.1, 5)])
def test_eight_gpus_for_five_minutes_fit_into_a_mail(
    tmp_path: Path, interval: float, megabytes: int
) -> None:
    """Measured over one minute of the demo."""
    clock = ManualClock()
    demo = Simulation(load_scenario("demo", SPECS), SPECS, "test", 0, clock)
    demo.round(0.0)
    file = LineFile(tmp_path / "r.jsonl.gz")
    header = header_of(demo, SPECS, interval, clock.time())
    workloads = WorkloadRecorder(demo.workloads)
    recorder = Recorder(file, header, clock, clock.monotonic(), workloads=workloads)
    for _ in range(round(60 / interval)):
        clock.advance(interval)
        demo.round(0.0)
        recorder.take(demo)

    assert len(demo.reports()) == 8
    assert recorder.end() * 5 < megabytes * 1_000_000
