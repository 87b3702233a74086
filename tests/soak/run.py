# SPDX-License-Identifier: Apache-2.0
"""Lives a day of a node in minutes, and judges what it left behind: memory, threads, descriptors.

The daemon is the real one, in a process of its own, on the simulated driver; its seconds are
simulated, one tick each. Meanwhile it is scraped in all formats, its pages are looked at, streams
open and close, training jobs come and go, it is made to reload, and its driver hangs, loses a GPU
and is reloaded.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.rig import EPOCH, busy_node, machine, rss_mb, table
from tests.e2e.daemons import Daemon, Key, Page
from tests.fake_nvml import FakeNvml, fault
from tests.soak.launcher import PACE_VARIABLE, PROGRAM
from tests.soak.visitors import Jobs, Viewers, Web
from tests.waiting import wait_until

GPUS = 2
SEGMENT_SECONDS = 600.0
"""Simulated time from one line of the table to the next."""
FLAT_MB = 2.0
WARM_UP_HOURS = 6.0
"""Simulated: after it every fault has happened three times, and RSS grows no more."""
FORGOTTEN_SECONDS = 420.0
"""Simulated time after which a job that has ended is on no page any more."""
SETTLED_SECONDS = 30.0
"""Real time in which idle threads end and closed connections are taken off."""
ERROR_DRIVER_NOT_LOADED = 9
CHANGING = re.compile(r"^(gpu_training_|gpu_xid_last_timestamp|roofline_exporter_build_info)")
"""Series that come and go, or whose labels follow the checkout that the daemon runs from."""


@dataclass(frozen=True)
class Sample:
    """The daemon at one moment, with no client connected."""

    hours: float
    rss_mb: float
    threads: int
    descriptors: int
    series: int


@dataclass(frozen=True)
class Verdict:
    """What a soak showed."""

    samples: list[Sample]
    warm: list[Sample]
    """Those after the warm-up; none if it was over before."""
    ticks: int
    answered: int
    complaints: list[str]

    @property
    def levels_mb(self) -> list[float]:
        """The median of RSS in each hour after the warm-up: a single sample may hit a fault."""
        hours: dict[int, list[float]] = {}
        for sample in self.warm:
            hours.setdefault(int(sample.hours), []).append(sample.rss_mb)
        return [statistics.median(sizes) for sizes in hours.values()]

    @property
    def drift_mb(self) -> float:
        """How far RSS in an hour was from its median, at most."""
        levels = self.levels_mb
        return max((abs(level - statistics.median(levels)) for level in levels), default=0.0)

    @property
    def growth_mb(self) -> float:
        """By how much RSS was higher in the last quarter of that time than in the first."""
        levels = self.levels_mb
        quarter = len(levels) // 4
        if not quarter:
            return 0.0
        return statistics.median(levels[-quarter:]) - statistics.median(levels[:quarter])


def scenario(seconds: float, every: float) -> dict[str, Any]:
    """Return a node whose driver has a fault every so often, each kind in its turn.

    A hang of GPU 0, then GPU 1 lost and back, then the driver unloaded and loaded again.
    """
    node = busy_node(GPUS, pids=[os.getpid()])
    lost: list[tuple[float, float]] = [(0.0, 0.0)]
    faults = []
    start, number = every / 2, 0
    while start < seconds:
        end = start + every / 4
        if number % 3 == 0:
            faults.append(fault("nvmlDeviceGet*", gpu=0, hang=True, start=start, until=end))
        elif number % 3 == 1:
            lost += [(start, 1.0), (end, 0.0)]
        else:
            faults.append(fault("*", error=ERROR_DRIVER_NOT_LOADED, start=start, until=end))
        start, number = start + every, number + 1
    node["devices"][1]["lost"] = {"steps": [list(point) for point in lost]}
    return {**node, "faults": faults}


class Soak:
    """One daemon under observation."""

    def __init__(self, directory: Path, hours: float, pace: float, every: float) -> None:
        self._seconds = hours * 3600
        self._driver = FakeNvml(directory / "driver", scenario(self._seconds, every), clock=EPOCH)
        config = directory / "config.yml"
        config.write_text("metrics: {level: full}\n", encoding="utf-8")
        env = {**self._driver.environment(), PACE_VARIABLE: str(pace)}
        flags = (f"--config.file={config}", "--no-source.kmsg", "--process.memory")
        self.daemon = Daemon(directory / "daemon", env, flags, PROGRAM)

    def now(self) -> float:
        """Return the simulated seconds since the start."""
        return self._driver.now() - EPOCH

    def sample(self) -> Sample:
        """Return what the process has now; no client may be connected."""
        series = len(self.daemon.metrics().samples)
        descriptors = wait_until(self._settled_descriptors, SETTLED_SECONDS, "stable descriptors")
        pid = self.daemon.pid
        return Sample(
            self.now() / 3600, rss_mb(pid), self.daemon.threads(), len(descriptors), series
        )

    def _settled_descriptors(self) -> list[str]:
        """Return the open descriptors, once no connection to the web server is among them."""
        folder = f"/proc/{self.daemon.pid}/fd"
        before = sorted(os.listdir(folder))
        time.sleep(0.05)
        after = sorted(os.listdir(folder))
        return after if before == after else []

    def run(self) -> Verdict:
        """Live through it; return what was left."""
        uuids = self._uuids()
        web, viewers = Web(self.daemon.port, uuids), Viewers(self.daemon.port)
        jobs = Jobs(self.daemon.socket, uuids)
        samples: list[Sample] = []
        try:
            for _ in range(len(uuids) * 16):  # every page and format once: what is loaded stays
                web.scrape()
                web.view()
            web.leave()
            self._segment(web, viewers, jobs)
            self._until(self.now() + FORGOTTEN_SECONDS)
            baseline, first = self._series(), self.sample()
            print(first, flush=True)
            while self.now() < self._seconds:
                self._segment(web, viewers, jobs)
                samples.append(self.sample())
                print(samples[-1], flush=True)
            self._until(self.now() + FORGOTTEN_SECONDS)
            complaints = [*web.unexpected[:5], *self._left(baseline, first)]
        finally:
            jobs.close()
            viewers.leave()
            web.leave()
        warm = [each for each in samples if each.hours >= WARM_UP_HOURS]
        complaints += self._end()
        verdict = Verdict(samples, warm, round(self.now()), web.answered, complaints)
        if max(verdict.drift_mb, verdict.growth_mb) > FLAT_MB:
            complaints.append(
                f"RSS is not flat: up to {verdict.drift_mb:.2f} MB from its median,"
                f" and {verdict.growth_mb:.2f} MB higher at last than at first"
            )
        return verdict

    def _uuids(self) -> list[str]:
        def known() -> list[str] | None:
            rows = self.daemon.metrics().rows("gpu_info")
            return [labels["uuid"] for labels, _ in rows] if len(rows) == GPUS else None

        return wait_until(known, what="both GPUs")

    def _until(self, seconds: float) -> None:
        """Wait for a simulated time."""
        patience = 60 + 10 * max(0.0, seconds - self.now())
        wait_until(lambda: self.now() >= seconds, patience, f"{seconds} s")

    def _segment(self, web: Web, viewers: Viewers, jobs: Jobs) -> None:
        """Have visitors for one segment; all have gone at its end."""
        end = self.now() + SEGMENT_SECONDS
        viewers.come()
        jobs.come()
        self.daemon.signal(signal.SIGHUP)
        while self.now() < end:
            for _ in range(4):
                web.scrape()
            web.view()
            jobs.stay()
            viewers.read()
            time.sleep(0.05)
        viewers.leave()
        jobs.leave()
        web.leave()

    def _series(self) -> frozenset[Key]:
        """Return the series that are there while no job comes or goes and no GPU is at fault."""

        def healthy() -> Page | None:
            page = self.daemon.metrics()
            ups = [value for _, value in page.rows("gpu_up")]
            return page if ups == [1.0] * GPUS else None

        page = wait_until(healthy, 120, "both GPUs up")
        return frozenset(page.samples)

    def _left(self, baseline: frozenset[Key], first: Sample) -> list[str]:
        """Return what is there now that was not before."""
        complaints = []
        more = [key for key in self._series() - baseline if not CHANGING.match(key[0])]
        jobs = {dict(key[1])["training_job"] for key in self._series() if _of_a_job(key)}
        if more:
            complaints.append(f"{len(more)} series are left over, {sorted(map(str, more))[:5]}")
        if jobs - {"steady"}:
            complaints.append(f"jobs are left over: {sorted(jobs)}")
        last = self._fewest(first)
        if last.threads > first.threads:
            complaints.append(f"threads: {first.threads} at first, {last.threads} at last")
        if last.descriptors > first.descriptors:
            complaints.append(
                f"descriptors: {first.descriptors} at first, {last.descriptors} at last"
            )
        return complaints

    def _fewest(self, enough: Sample) -> Sample:
        """Return a sample once idle threads and open files have had their time to go."""
        deadline = time.monotonic() + SETTLED_SECONDS
        while True:
            sample = self.sample()
            few = sample.threads <= enough.threads and sample.descriptors <= enough.descriptors
            if few or time.monotonic() > deadline:
                return sample
            time.sleep(1.0)

    def _end(self) -> list[str]:
        """Stop the daemon; return what was wrong with that, and what it complained about."""
        code, seconds = self.daemon.stop()
        complaints = [f"it ended with {code}"] if code else []
        if seconds > 5:
            complaints.append(f"it took {seconds:.1f} s to end")
        bad = [*self.daemon.lines("a tick failed"), *self.daemon.lines("level=error")]
        return complaints + bad[:5]


def _of_a_job(key: Key) -> bool:
    return any(name == "training_job" for name, _ in key[1])


def summary(verdict: Verdict, most_rows: int = 12) -> str:
    """Return a short table for the documentation: of each stretch of time the last line."""
    step = max(1, len(verdict.samples) // most_rows)
    rows = [
        [
            f"{sample.hours:.1f}",
            f"{sample.rss_mb:.1f}",
            str(sample.threads),
            str(sample.descriptors),
            str(sample.series),
        ]
        for sample in verdict.samples[step - 1 :: step]
    ]
    return table(["simulated hours", "RSS MB", "threads", "descriptors", "series"], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a soak; return 0 if it left nothing over."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="simulated time")
    parser.add_argument("--pace", type=float, default=100.0, help="ticks a second, at most")
    parser.add_argument(
        "--fault-minutes",
        type=float,
        default=40.0,
        help="simulated time from one fault of the driver to the next",
    )
    options = parser.parse_args(argv)
    print(f"{machine()}\n{GPUS} H100 GPUs, {options.hours:g} simulated hours\n", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        soak = Soak(Path(directory), options.hours, options.pace, options.fault_minutes * 60)
        try:
            verdict = soak.run()
        finally:
            soak.daemon.kill()
    minutes = (time.monotonic() - began) / 60
    middle = statistics.median(each.rss_mb for each in verdict.samples)
    memory = (
        f"each hour after {WARM_UP_HOURS:g} within {verdict.drift_mb:.2f} MB of the median,"
        f" {verdict.growth_mb:.2f} MB higher in the last quarter than in the first"
        if verdict.warm
        else f"not judged before {WARM_UP_HOURS:g} hours"
    )
    print(
        f"\n{summary(verdict)}\n\n{verdict.ticks} ticks in {minutes:.1f} minutes,"
        f" {verdict.answered} answers. RSS: median {middle:.1f} MB, {memory}."
    )
    for complaint in verdict.complaints:
        print(f"NOT FLAT: {complaint}", file=sys.stderr)
    return 1 if verdict.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
