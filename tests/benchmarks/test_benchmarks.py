# SPDX-License-Identifier: Apache-2.0
"""The benchmarks work and print what they promise; no test here depends on how fast they are."""

from __future__ import annotations

import gc
import os
import pathlib
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from tests.benchmarks import peers
from tests.benchmarks.cpu_profile import OTHER, PARTS
from tests.benchmarks.rig import EPOCH, Accelerated, busy_node
from tests.conftest import require_tool
from tests.dashboards.models import NAMES_AT_SCALE, targets
from tests.fake_nvml import FakeNvml
from tests.rules.rules import RULES, RULES_BY_GROUP

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
WARM_UP_TICKS = 1000
"""The history of 15 minutes is full by then."""
TICKS = 2000
GROWTH_BYTES = 16 * 1024
"""Over the ticks after the warm-up: a float of 24 bytes kept per tick would exceed it."""


def run(module: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.benchmarks.{module}", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cells(output: str, first: str) -> list[str]:
    """The cells of the row that starts with `first`."""
    for line in output.splitlines():
        row = [cell.strip() for cell in line.strip("| ").split("|")]
        if row[0] == first:
            return row
    raise AssertionError(f"no row {first!r} in:\n{output}")


def test_workloads_prints_what_each_page_costs() -> None:
    """Both pages have all instances and pods; each is measured, and so is the peer."""
    output = run("workloads", "--seconds=0.2")
    own, dcgm = cells(output, "/metrics/dcgm?names=current"), cells(output, "/metrics/dcgm")
    assert own[1] == dcgm[1]
    assert int(dcgm[1]) > 8 * 7 * 20
    assert all(float(cell) > 0 for cell in dcgm[2:5])
    assert float(cells(output, "and /metrics/dcgm")[1]) > 0


def test_ticks_prints_memory_and_the_cost_of_each_part() -> None:
    """Every line has a plausible resident set, and parts that add up to the tick."""
    row = cells(run("ticks", "--gpus=2", "--ticks=30"), "30")
    rss, read, derive, render, zipped, tick = map(float, row[1:])
    assert 10 < rss < 1000
    assert read + derive + render + zipped == pytest.approx(tick, abs=3)


def test_cupti_prints_what_each_process_costs() -> None:
    """And that what was sampled arrived."""
    output = run("cupti", "--gpus=2", "--seconds=2")
    assert 0 < float(cells(output, "child")[1]) < 100
    assert float(cells(output, "idle Python")[1]) >= 0
    assert re.search(r"^[234] readings arrived, of 4 seconds", output, re.MULTILINE)


def test_scaling_prints_one_line_for_each_size() -> None:
    """The series of a page grow with the GPUs."""
    output = run("scaling", "--gpus=1,3", "--ticks=3")
    one, three = cells(output, "1"), cells(output, "3")
    assert int(three[1]) > 2 * int(one[1])
    assert all(float(cell) > 0 for cell in three[1:5])


def test_a_page_of_dcgm_prints_its_cost_beside_that_of_the_parser() -> None:
    """Pages of 200 kB, of which all GPUs are read."""
    output = run("dcgm_page", "--rounds=1")
    for name, gpus in (("8 GPUs of 4 pods each", 8), ("8 GPUs and many other fields", 8)):
        row = cells(output, name)
        assert 198 <= int(row[1]) <= 200
        assert int(row[3]) == gpus
        assert all(float(cell) > 0 for cell in row[4:])


def test_peers_prints_both_exporters_and_the_ratio() -> None:
    """Both are read and scraped, and the ratio row is there."""
    output = run("peers", "--gpus=2", "--seconds=2", "--warm-up=1", "--latency-us=50")
    ours = cells(output, "roofline-exporter, 50 µs")
    peer = cells(output, "nvitop-exporter, 50 µs")
    assert ours[-1] == "kept"
    assert all(float(cell) > 0 for cell in ours[1:3] + ours[4:7] + peer[1:3] + peer[4:7])
    assert float(cells(output, "ratio, 50 µs")[5]) > 0


def test_viewers_prints_one_line_for_each_number() -> None:
    """Every viewer gets its events, which take bytes and CPU time."""
    output = run("viewers", "--gpus=2", "--viewers=0,3", "--seconds=3", "--rounds=1")
    alone, three = cells(output, "0"), cells(output, "3")
    assert alone[2:5] == ["0.00", "0.00", "0"]
    assert 0.5 < float(three[3]) < 1.5
    assert all(float(cell) > 0 for cell in (alone[1], three[1], three[4], three[5]))


def test_rules_prints_one_line_for_each_group() -> None:
    """Every group was evaluated without an error and took some of its interval; panels answer."""
    require_tool("prometheus")
    short = "--seconds=6 --settle=1 --history=600 --recorded=10 --scrape=1 --warm-up=2 --profile=5"
    output = run("rules", "--nodes=2", "--interval=2s", "--queries", *short.split())
    rows = [cells(output, group) for group in RULES_BY_GROUP]
    assert [int(row[1]) for row in rows] == [len(rules) for rules in RULES_BY_GROUP.values()]
    assert all(0 < float(row[3]) < 2 for row in rows)
    assert cells(output, "all")[1] == str(len(RULES))
    parts = re.search(r"of these by its profile: (.+)", output)
    assert parts is not None
    cores = dict(part.rsplit(" ", 1) for part in parts[1].split(", "))
    assert list(cores) == [*(part for part, _ in PARTS), OTHER]
    assert sum(map(float, cores.values())) > 0
    filled = re.search(r"that of (\d+) of (\d+) recorded families", output)
    assert filled is not None
    assert 2 <= int(filled[1]) <= int(filled[2])
    asked = re.search(r"(\d+) queries of the dashboards at scale: (\d+) took over 2 s", output)
    assert asked is not None
    assert int(asked[1]) == sum(len(list(targets(name))) for name in NAMES_AT_SCALE)


def test_sizing_prints_what_a_series_and_a_pod_cost() -> None:
    """A new pod on a GPU is one series of the page, and its rank all that a rank has."""
    require_tool("prometheus")
    output = run("sizing", "--nodes=1", "--hours=0.1", "--settle=12")
    assert 0.5 < float(cells(output, "bytes a sample, chunks")[1]) < 16
    assert float(cells(output, "kB of memory a series")[1]) > 0
    assert float(cells(output, "recorded a GPU")[1]) > 1
    assert cells(output, "new series a pod, scraped")[1] == "1.0"
    assert float(cells(output, "new series a rank, scraped")[1]) > 10
    assert float(cells(output, "new series a pod, recorded")[1]) > 0


def figures(name: str, **changed: float) -> peers.Figures:
    values = {"p50_ms": 0.5, "p99_ms": 1.0, "cpu_percent": 0.5, "rss_mb": 50.0, "calls": 13.0}
    return peers.Figures(name, 0, series=1000, keeps_alive=True, **{**values, **changed})


def test_each_target_can_be_missed() -> None:
    """`--check` names exactly the targets that the figures miss."""
    peer = figures(peers.PEER, cpu_percent=3.2, calls=17.5)
    assert peers.missed([figures(peers.OURS), peer]) == []
    for changed, expected in (
        ({"p50_ms": 1.01}, ["p50 1.01"]),
        ({"cpu_percent": 1.1}, ["CPU 1.10"]),
        ({"cpu_percent": 1.3}, ["CPU 1.30", "CPU / peer's 0.41"]),
        ({"rss_mb": 53.5}, ["RSS 53.50"]),
        ({"api_rss_mb": 62.5}, ["RSS with the API 62.50"]),
        ({"calls": 17.5}, ["calls 17.50"]),
    ):
        problems = peers.missed([figures(peers.OURS, **changed), peer])
        assert [line[: len(text)] for line, text in zip(problems, expected, strict=True)] == (
            expected
        )


def _held_bytes() -> int:
    """Return what Python holds, but for what the rig's own paths made it allocate.

    They intern their parts, and the interpreter's table of such texts doubles by chance: 2 MB.
    """
    gc.collect()
    traces = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(False, pathlib.__file__)]
    )
    return sum(found.size for found in traces.statistics("filename"))


def test_memory_stays_flat_over_thousands_of_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python holds little more after 2,000 ticks than after the first 1,000."""
    fake = FakeNvml(tmp_path, busy_node(1), clock=EPOCH)
    fake.activate(monkeypatch)
    bench = Accelerated(fake, 1)
    bench.start()
    tracemalloc.start()
    try:
        for _ in range(WARM_UP_TICKS):
            bench.tick()
        before = _held_bytes()
        for _ in range(TICKS - WARM_UP_TICKS):
            bench.tick()
        after = _held_bytes()
        assert bench.page()
    finally:
        tracemalloc.stop()
        bench.stop()
    assert after - before < GROWTH_BYTES
