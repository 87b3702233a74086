# SPDX-License-Identifier: Apache-2.0
"""Compares this exporter with nvitop-exporter on the same simulated driver, in the same run."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.benchmarks.rig import (
    CACHED,
    busy_node,
    cpu_seconds,
    machine,
    print_missed,
    rss_mb,
    series,
    table,
)
from tests.benchmarks.scraper import Scraper
from tests.e2e.processes import Process
from tests.fake_nvml import FakeNvml
from tests.serving import free_port
from tests.waiting import wait_until

PEER = "nvitop-exporter"
OURS = "roofline-exporter"
READY_SECONDS = 30.0
GOLDEN = 0.6180339887

P50_MS = 1.0
CPU_PERCENT = 1.0
CPU_OF_PEER = 0.35
RSS_MB = 53.0
API_RSS_MB = 62.0
"""After the first request to the API."""
CALLS = 18.0

COMMANDS: Mapping[str, tuple[str, ...]] = {
    OURS: ("-m", "exporter", "serve", "--log.level=error", "--web.listen-address=127.0.0.1:{port}"),
    PEER: ("-m", "nvitop_exporter", "--port={port}", "--interval=1"),
}
POWER: Mapping[str, str] = {OURS: "gpu_power_watts{", PEER: "gpu_power_usage_W{"}
"""A family with one series per GPU whose value never stands still."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one exporter did in one window."""

    name: str
    latency_us: int
    p50_ms: float
    p99_ms: float
    cpu_percent: float
    rss_mb: float
    series: int
    calls: float
    """Driver calls per GPU and second."""
    keeps_alive: bool
    api_rss_mb: float | None = None
    """After the first request to its API; None of one that has none."""


class Running:
    """One exporter as a process of its own, on a simulated driver of its own."""

    def __init__(
        self, name: str, gpus: int, latency_us: int, pids: Sequence[int], directory: Path
    ) -> None:
        self.name = name
        self.latency_us = latency_us
        self._gpus = gpus
        self._fake = FakeNvml(directory, busy_node(gpus, latency_us=latency_us, pids=pids))
        self._port = port = free_port()
        words = [word.format(port=port) for word in COMMANDS[name]]
        environ = {**CACHED, **self._fake.environment()}
        self._process = Process([sys.executable, *words], directory / "process", environ)
        self._scraper = Scraper(port)
        self._seconds: list[float] = []
        self._first: dict[str, str] = {}
        self._calls = 0
        self._cpu = self._began = 0.0

    def wait(self) -> None:
        """Wait until the page shows every GPU."""

        def shown() -> bool:
            try:
                return len(self._powers(self._scraper.scrape().text())) == self._gpus
            except OSError:
                self._scraper.close()
                return False

        wait_until(shown, READY_SECONDS, f"all GPUs on the page of {self.name}")

    def _powers(self, page: str) -> dict[str, str]:
        """Return the power of each GPU that the page shows, by its labels."""
        lines = [line for line in page.splitlines() if line.startswith(POWER[self.name])]
        pairs = (line.rpartition(" ") for line in lines)
        return {labels: value for labels, _, value in pairs}

    def _refuse_if_not_live(self, before: dict[str, str], after: dict[str, str]) -> None:
        """Raise unless every GPU was read in the window: an exporter that reads none is fast."""
        live = sum(after.get(labels, power) != power for labels, power in before.items())
        if live != self._gpus or len(after) != self._gpus:
            message = f"{self.name} read {live} of {self._gpus} GPUs: its figures mean nothing"
            raise RuntimeError(message)

    def begin(self) -> None:
        """Begin the window: all before it was warm-up."""
        self._first = self._powers(self._scraper.scrape().text())
        self._seconds.clear()
        self._scraper.connections = 0
        self._calls = self._driver_calls()
        self._cpu = cpu_seconds(self._process.pid)
        self._began = time.monotonic()

    def scrape(self) -> None:
        """Scrape once."""
        answer = self._scraper.scrape()
        if answer.status != 200:
            message = f"{self.name} answered {answer.status}"
            raise RuntimeError(message)
        self._seconds.append(answer.seconds)

    def end(self) -> Figures:
        """End the window and return its figures."""
        wall = time.monotonic() - self._began
        cpu = cpu_seconds(self._process.pid) - self._cpu
        calls = self._driver_calls() - self._calls
        connections = self._scraper.connections
        page = self._scraper.scrape().text()
        self._refuse_if_not_live(self._first, self._powers(page))
        rss = rss_mb(self._process.pid)
        return Figures(
            name=self.name,
            latency_us=self.latency_us,
            p50_ms=percentile(self._seconds, 50) * 1e3,
            p99_ms=percentile(self._seconds, 99) * 1e3,
            cpu_percent=100 * cpu / wall,
            rss_mb=rss,
            series=series(page),
            calls=calls / self._gpus / wall,
            keeps_alive=connections < len(self._seconds),
            api_rss_mb=self._rss_with_api() if self.name == OURS else None,
        )

    def _rss_with_api(self) -> float:
        api = Scraper(self._port, "/api/v1/gpus")
        api.scrape()
        api.close()
        return rss_mb(self._process.pid)

    def _driver_calls(self) -> int:
        return sum(self._fake.calls().values())

    def stop(self) -> None:
        """End the process."""
        self._scraper.close()
        self._process.kill()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table and the ratios; return 1 where a checked target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=30, help="length of each window")
    parser.add_argument("--warm-up", type=int, default=5, help="seconds before each window")
    parser.add_argument("--every", type=int, default=1, help="seconds between two scrapes")
    parser.add_argument("--latency-us", default="0,200", help="latencies of a driver call")
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    options = parser.parse_args(argv)
    try:
        peer_version = version(PEER)
    except PackageNotFoundError:
        print(f"{PEER} is not installed: make bench installs it", file=sys.stderr)
        return 1
    print(
        f"{machine()}\n"
        f"{OURS} {version(OURS)} and {PEER} {peer_version}, {options.gpus} H100 GPUs with one\n"
        f"process each, polled once a second and scraped (gzip, keep-alive, headers of Prometheus\n"
        f"3) every {options.every} s, side by side for {options.seconds} s after "
        f"{options.warm_up} s of warm-up\n",
        flush=True,
    )
    try:
        figures = [
            one
            for latency in map(int, options.latency_us.split(","))
            for one in measure(
                options.gpus, latency, options.seconds, options.warm_up, options.every
            )
        ]
    except (RuntimeError, AssertionError) as error:
        print(error, file=sys.stderr)
        return 1
    print(report(figures))
    return print_missed(missed(figures), check=options.check)


def measure(
    gpus: int, latency_us: int, seconds: int, warm_up: int, every: int = 1
) -> list[Figures]:
    """Run both exporters side by side and return the figures of each."""
    with contextlib.ExitStack() as stack:
        pids = stack.enter_context(_jobs(gpus))
        running = []
        for name in (OURS, PEER):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            running.append(Running(name, gpus, latency_us, pids, directory))
            stack.callback(running[-1].stop)
        for one in running:
            one.wait()
        _scrape(running, warm_up, every)
        for one in running:
            one.begin()
        _scrape(running, seconds, every)
        return [one.end() for one in running]


def _scrape(running: Sequence[Running], seconds: int, every: int) -> None:
    """Scrape each once in each second, or in each `every` seconds, half a second apart.

    The moment within the second wanders, so it meets every phase of the exporters' polls.
    """
    began = time.monotonic()
    for second in range(0, seconds, every):
        for place, one in enumerate(running):
            phase = (second * GOLDEN % 1.0) * 0.5 + place * 0.5
            time.sleep(max(0.0, began + second + phase - time.monotonic()))
            one.scrape()
    time.sleep(max(0.0, began + seconds - time.monotonic()))


@contextlib.contextmanager
def _jobs(count: int) -> Iterator[list[int]]:
    """One sleeping process per GPU, so that the lists of processes are about something."""
    jobs = [subprocess.Popen(["sleep", "3600"]) for _ in range(count)]
    try:
        yield [job.pid for job in jobs]
    finally:
        for job in jobs:
            job.kill()
            job.wait()


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least so many percent do not exceed."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


COLUMNS = {
    "p50_ms": ("p50 ms", ".2f"),
    "p99_ms": ("p99 ms", ".2f"),
    "cpu_percent": ("CPU %", ".2f"),
    "rss_mb": ("RSS MB", ".1f"),
    "series": ("series", ""),
    "calls": ("calls/GPU/s", ".1f"),
}
"""The head and the format of each figure."""


def report(figures: Sequence[Figures]) -> str:
    """Return the table: a row for each exporter and latency, and one for each pair's ratios."""
    rows = []
    for pair in _pairs(figures):
        for one in pair:
            cells = [format(getattr(one, name), form) for name, (_, form) in COLUMNS.items()]
            connection = "kept" if one.keeps_alive else "new each"
            rows.append([f"{one.name}, {one.latency_us} µs", *cells, connection])
        ratios = []
        for name in COLUMNS:
            mine, theirs = (getattr(one, name) for one in pair)
            ratios.append(f"{mine / theirs:.2f}" if theirs else "-")
        rows.append([f"ratio, {pair[0].latency_us} µs", *ratios, ""])
    with_api = "".join(
        f"\nRSS after the first API request: {one.api_rss_mb:.1f} MB at {one.latency_us} µs"
        for one in figures
        if one.api_rss_mb is not None
    )
    head = ["exporter, driver latency", *(head for head, _ in COLUMNS.values()), "connection"]
    return f"{table(head, rows)}\n{with_api}"


def missed(figures: Sequence[Figures]) -> list[str]:
    """Return each target that was missed, in one line."""
    problems = []
    for ours, peer in _pairs(figures):
        shared = ours.cpu_percent / peer.cpu_percent if peer.cpu_percent else float("inf")
        most_calls, with_api = min(CALLS, peer.calls), ours.api_rss_mb or 0.0
        for what, value, limit, met, unit in (
            ("p50", ours.p50_ms, P50_MS, ours.p50_ms <= P50_MS, "ms"),
            ("CPU", ours.cpu_percent, CPU_PERCENT, ours.cpu_percent <= CPU_PERCENT, "% of a core"),
            ("CPU / peer's", shared, CPU_OF_PEER, shared <= CPU_OF_PEER, ""),
            ("RSS", ours.rss_mb, RSS_MB, ours.rss_mb <= RSS_MB, "MB"),
            ("RSS with the API", with_api, API_RSS_MB, with_api <= API_RSS_MB, "MB"),
            ("calls", ours.calls, most_calls, ours.calls < most_calls, "per GPU and second"),
        ):
            if not met:
                problems.append(
                    f"{what} {value:.2f} {unit}, target {limit:g}, "
                    f"at {ours.latency_us} µs of driver latency"
                )
    return problems


def _pairs(figures: Sequence[Figures]) -> Iterator[tuple[Figures, Figures]]:
    """Return ours and the peer's figures for each latency."""
    peers = {one.latency_us: one for one in figures if one.name == PEER}
    for one in figures:
        if one.name == OURS:
            yield one, peers[one.latency_us]


if __name__ == "__main__":
    sys.exit(main())
