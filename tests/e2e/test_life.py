# SPDX-License-Identifier: Apache-2.0
"""Signals: the daemon stops in time, re-reads what it may, and says when it hangs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM, Signals

import pytest

from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.daemons import COMMAND, Daemon, Page
from tests.e2e.processes import Process, retry_once
from tests.fake_nvml import fault
from tests.waiting import wait_until

STOP_SECONDS = 2.0
RELOADED = "roofline_exporter_config_last_reload_successful"
ARENA_BYTES = 64 * 2**20
TWO_GPUS = {"devices": [{"product": "h100-sxm"}, {"product": "t4"}]}
HELD = """\
import os, sys
from exporter.cli import config, main

gate, load = sys.argv.pop(1), config.load

def held(*words):
    if os.path.exists(gate):
        open(gate).read()
    return load(*words)

config.load = held
sys.exit(main.main())
"""
LAST = {
    "gpu_busy_seconds_total",
    "gpu_idle_energy_joules_total",
    "gpu_held_idle_energy_joules_total",
}
"""The counters that a page has last, after two readings."""
H100_CAPPED = """\
products:
  h100-sxm5-80gb:
    product: H100 SXM5 80GB, capped
    names: [NVIDIA H100 80GB HBM3]
    pci_ids: ['2330']
    architecture: Hopper
    compute_capability: '9.0'
    sm_count: 132
    cores_per_sm: 128
    clock_mhz: {{vector: 1980, tensor: 1830, memory: 2619}}
    peak_tflops: {{fp32: 66.9, bf16_tensor: {bf16_tensor}}}
    memory_bandwidth_gb_s: 3350
"""


def _wait_until_hung(daemon: Daemon, gpus: tuple[str, ...]) -> None:
    """Wait until these GPUs have not been read for longer than a round takes."""

    def hung() -> bool:
        page = daemon.metrics()
        return all(
            time.time() - page.value("gpu_last_read_timestamp_seconds", gpu=gpu) > 1.3
            for gpu in gpus
        )

    wait_until(hung, what="a hung call")


@pytest.mark.parametrize(
    ("signal", "hung"),
    [
        pytest.param(SIGTERM, (), marks=pytest.mark.slow, id="TERM"),
        pytest.param(SIGTERM, ("0", "1"), id="TERM-all-hung"),
        pytest.param(SIGINT, ("0",), id="INT-one-hung"),
    ],
)
@retry_once
def test_stops_within_two_seconds(
    make_driver: MakeDriver, start: StartDaemon, signal: Signals, hung: tuple[str, ...]
) -> None:
    """SIGTERM and SIGINT end it with exit code 0, also while calls of the driver hang."""
    driver = make_driver(TWO_GPUS)
    daemon = start(driver, wait_for=2)
    driver.update(faults=[fault("*", gpu=int(gpu), hang=True) for gpu in hung])
    if hung:
        _wait_until_hung(daemon, hung)
    code, seconds = daemon.stop(signal)
    assert code == 0, daemon.lines()
    assert seconds < STOP_SECONDS
    assert daemon.lines("msg=stopped") == daemon.lines()[-1:]
    assert not daemon.lines("Traceback")


@retry_once
def test_stops_while_initialisation_hangs(make_driver: MakeDriver, start: StartDaemon) -> None:
    """It listens although nvmlInit does not return, says so, and stops in time."""
    daemon = start(make_driver({**TWO_GPUS, "faults": [fault("nvmlInit*", hang=True)]}))
    assert daemon.get("/-/healthy").status == 200
    daemon.find_in_line("NVML's initialisation does not return", 8)
    ready = daemon.get("/-/ready")
    assert (ready.status, len(ready.text.splitlines())) == (503, 1)
    assert "does not return" in ready.text
    code, seconds = daemon.stop()
    assert code == 0
    assert seconds < STOP_SECONDS


@pytest.mark.parametrize("signal", [SIGHUP, SIGTERM])
def test_a_signal_while_it_still_starts_is_heeded_afterwards(
    make_driver: MakeDriver, start: StartDaemon, tmp_path: Path, signal: Signals
) -> None:
    """A reload right after the start does not end it, and a stop ends it with exit code 0.

    It is held where it reads its configuration: nobody has opened a pipe for writing yet.
    """
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    driver = make_driver(TWO_GPUS)
    words = ["serve", "--web.listen-address=127.0.0.1:0", "--no-source.training"]
    command = [sys.executable, "-c", HELD, str(gate), *words]
    daemon = Process(command, tmp_path / "output", driver.environment())
    try:
        with gate.open("w"):  # returns once it reads
            daemon.signal(signal)
            gate.unlink()
        if signal == SIGHUP:
            daemon.find_in_line("configuration reloaded")
            assert daemon.stop()[0] == 0
        else:
            assert daemon.wait() == 0
    finally:
        daemon.kill()


def _peak(page: Page) -> float:
    return page.value("gpu_peak_flops_per_second", precision="bf16_tensor", basis="spec")


def test_a_reload_uses_the_new_settings_or_keeps_the_old_ones(
    make_driver: MakeDriver, start: StartDaemon, tmp_path: Path
) -> None:
    """After SIGHUP the level and the ceilings are those of the files now, and counters go on; a
    mistake in either file is one line that names file and line, and nothing else changes."""
    config, specs = tmp_path / "roofline.yml", tmp_path / "specs.yml"

    def write(peak: object, metrics: str) -> None:
        specs.write_text(H100_CAPPED.format(bf16_tensor=peak))
        config.write_text(f"specs: {specs}\n{metrics}\n")

    write(500, "metrics: {level: full}")
    driver = make_driver({"devices": [{"product": "h100-sxm"}]})
    daemon = start(driver, f"--config.file={config}", wait_for=1)
    before = daemon.page_when(lambda page: page.names >= LAST, f"{sorted(LAST)} are there")
    assert _peak(before) == 500e12

    def reload(expected: str) -> str:
        """Send SIGHUP; return the one line that it causes."""
        lines = len(daemon.lines())
        daemon.signal(SIGHUP)
        wait_until(lambda: len(daemon.lines()) > lines, 5, expected)
        (line,) = daemon.lines()[lines:]
        assert expected in line
        return line

    write(700, "metrics: {level: core}")
    reload("configuration reloaded")
    lines = daemon.lines()
    after = daemon.page_when(lambda page: _peak(page) == 700e12, "the new ceiling", 3)
    assert daemon.lines() == lines, "requests are no events"
    assert after.names < before.names
    assert "gpu_fan_speed_ratio" not in after.names
    assert after.value(RELOADED) == before.value(RELOADED) == 1
    assert after.value("gpu_busy_seconds_total") >= before.value("gpu_busy_seconds_total")
    observed = "gpu_observed_seconds_total"
    assert after.value(observed, reading="activity") > before.value(observed, reading="activity")

    for peak, metrics, place, key in (
        (500, "metrics:\n  level: cor", f"{config}:3: ", "metrics.level"),
        ("much", "metrics: {level: full}", f"{specs}:11: ", "bf16_tensor"),
    ):
        write(peak, metrics)
        line = reload("configuration not reloaded")
        assert place in line
        assert key in line
    time.sleep(1.5)  # longer than a tick: nothing of it may be used later either
    page = daemon.metrics()
    assert _peak(page) == 700e12
    assert page.names == after.names
    assert page.value(RELOADED) == 0


def test_its_threads_allocate_from_one_arena(make_driver: MakeDriver, start: StartDaemon) -> None:
    """Further arenas of glibc begin at multiples of 64 MiB and reserve the rest of as much."""
    driver = make_driver({"devices": {"count": 4}})
    daemon = start(driver, wait_for=4)
    maps = Path(f"/proc/{daemon.pid}/maps").read_text(encoding="utf-8").splitlines()
    ranges = []
    for line in maps:
        where, flags, *rest = line.split()
        begin, _, end = where.partition("-")
        if len(rest) == 3:  # no file
            ranges.append((int(begin, 16), int(end, 16), flags))
    arenas = [
        first
        for (first, middle, used), (begin_of_rest, last, reserved) in pairwise(ranges)
        if (used, reserved) == ("rw-p", "---p") and middle == begin_of_rest
        if first % ARENA_BYTES == 0 and last - first == ARENA_BYTES
    ]
    assert arenas == []


PROGRAM = """
import os, sys, time
from exporter.publisher.tick import Publisher
from exporter.web import health

health.SILENT_SECONDS = 1.0
tick = Publisher.tick

def troubled(publisher):
    while os.path.exists(sys.argv[1] + "/frozen"):
        time.sleep(0.05)
    if os.path.exists(sys.argv[1] + "/dead"):
        raise SystemExit
    return tick(publisher)

Publisher.tick = troubled
from exporter.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("trouble", ["frozen", "dead"])
def test_a_publisher_in_trouble_is_not_healthy(
    folders: Iterator[Path], processes: list[Process], tmp_path: Path, trouble: str
) -> None:
    """`healthcheck` says so, too; one that only hung for a while is healthy again."""
    program = (sys.executable, "-c", PROGRAM, str(tmp_path))
    daemon = Daemon(next(folders), {}, ("--demo", "--poll.interval=100ms"), program)
    processes.append(daemon)
    daemon.wait_for_gpus(8)
    assert daemon.get("/-/healthy").text == "healthy\n"
    (tmp_path / trouble).touch()
    wait_until(lambda: daemon.get("/-/healthy").status == 503)
    said = "not healthy: no reading round has ended for "
    assert daemon.get("/-/healthy").text.startswith(said)
    check = Process([*COMMAND, "healthcheck", f"--url={daemon.url}"], next(folders))
    assert check.wait() == 1
    assert check.lines(f"{daemon.url}/-/healthy: 503 {said}")
    assert daemon.get("/metrics").status == 200
    (tmp_path / trouble).unlink()
    if trouble == "frozen":
        wait_until(lambda: daemon.get("/-/healthy").status == 200)
