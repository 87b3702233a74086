# SPDX-License-Identifier: Apache-2.0
"""Shows what a node full of MIG instances and pods costs: both pages of metrics, once a second.

The peer is client_python, which writes the same samples of both pages in this process.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.cli import main as command
from exporter.cli import wiring
from exporter.exposition.pages import encoded
from exporter.model.snapshot import SourceState
from exporter.model.workload import Allocation, DeviceName, Workload, WorkloadReport
from exporter.sources.interface import AlwaysOn
from tests.benchmarks.rig import (
    CACHED,
    busy_node,
    cpu_seconds,
    gpm,
    machine,
    print_missed,
    rss_mb,
    series,
    table,
)
from tests.benchmarks.scraper import Answer, Scraper
from tests.e2e.daemons import Daemon
from tests.fake_nvml import FakeNvml, sine
from tests.waiting import wait_until

GPUS = 8
INSTANCES = 7
PODS = 60
CPU_PERCENT = 4.0
"""Of a core, at most, for the daemon with both pages scraped once a second."""
SCRAPE_MILLISECONDS = 3.0
"""The median of scrapes of /metrics, at most."""
PROGRAM = (sys.executable, "-m", "tests.benchmarks.workloads")
SERVE = "with-pods"
OWN, LEGACY, CURRENT = "/metrics", "/metrics/dcgm", "/metrics/dcgm?names=current"
STAGES: dict[str, tuple[str, ...]] = {
    "nobody asks": (),
    OWN: (OWN,),
    f"and {LEGACY}": (OWN, LEGACY),
    "and names=current": (OWN, LEGACY, CURRENT),
}
"""Each stage has the scrapers of those before it."""
HEAD = ("scraped once a second", "CPU %", "added %", "p50 ms", "p99 ms", "RSS MB")
PAGE_HEAD = ("page", "series", "kB", "gzip kB", "client_python ms", "added here, ms", "ratio")
SETTLE_SECONDS = 3.0
PEER_ROUNDS = 9


def instance_uuid(gpu: int, instance: int) -> str:
    """Return the UUID of a MIG instance of the simulated node."""
    return f"MIG-00000000-0000-0000-{gpu:04x}-{instance:012x}"


def node() -> dict[str, Any]:
    """Return a scenario of GPUs that are all divided, and whose readings change all the time."""
    scenario = busy_node(GPUS)
    for gpu, device in enumerate(scenario["devices"]):
        device["mig"] = {
            "instances": [_instance(gpu, instance) for instance in range(1, INSTANCES + 1)]
        }
    return scenario


def _instance(gpu: int, instance: int) -> dict[str, Any]:
    def around(mean: float, amplitude: float) -> dict[str, Any]:
        return sine(29 + gpu + instance, mean, amplitude, phase=gpu + instance * 0.9)

    return {
        "gi": instance,
        "ci": 0,
        "profile": "1g.10gb",
        "uuid": instance_uuid(gpu, instance),
        "memory_mb": 9856,
        "memory_used": 2**32,
        "gpm": gpm(around),
    }


def pods() -> WorkloadReport:
    """Return what a kubelet says of the node: a pod for each instance, the rest shares some."""
    instances = [(gpu, instance) for gpu in range(GPUS) for instance in range(1, INSTANCES + 1)]
    workloads = [
        Workload(
            "kubernetes",
            f"team-{number % 5}",
            f"llm-finetune-7b-{number:02d}-worker-{number % 4}",
            "trainer",
            id=f"5d1b2b0e-3f77-4d3a-9a39-{number:012x}",
        )
        for number in range(PODS)
    ]
    return WorkloadReport(
        tuple(
            Allocation(
                DeviceName(mig_uuid=instance_uuid(*instances[number % len(instances)])), workload
            )
            for number, workload in enumerate(workloads)
        ),
        allocates=True,
        pod_labels={
            f"{each.namespace}/{each.pod}": {
                "app.kubernetes.io/name": "llm-finetune",
                "team": each.namespace,
            }
            for each in workloads
        },
    )


class Pods(AlwaysOn):
    """A source of workloads that has answered once, and has nothing new since."""

    name = "kubernetes"

    def __init__(self) -> None:
        self._report = pods()

    def report(self) -> WorkloadReport:
        """Return the pods, the same object each time."""
        return self._report

    @property
    def state(self) -> SourceState:
        """Answering."""
        return SourceState(up=True, read_seconds=0.001, age_seconds=1.0)


def serve(words: Sequence[str]) -> int:
    """Run the daemon, with these pods instead of a kubelet's."""
    vars(wiring)["choose_workloads"] = lambda *_: (Pods(),)
    return command.main(words)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one stage costs."""

    cpu_percent: float
    rss_mb: float
    seconds: tuple[float, ...]
    """How long each scrape of /metrics took."""
    answers: dict[str, Answer]
    """The last one of each page."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print tables; return 1 where a checked target is missed."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == [SERVE]:
        return serve(words[1:])
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.workloads", description=__doc__
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a window")
    parser.add_argument("--check", action="store_true", help="fail where a target is missed")
    options = parser.parse_args(words)
    print(
        f"{machine()}\n{GPUS} H100 GPUs of {INSTANCES} MIG instances each, {PODS} pods; polled "
        f"once a second; windows of {options.seconds:g} s\n",
        flush=True,
    )
    costs = measure(options.seconds)
    print(table(HEAD, _rows(costs)))
    print()
    print(table(PAGE_HEAD, _page_rows(costs)))
    return print_missed(missed(costs), check=options.check)


def measure(seconds: float) -> dict[str, Cost]:
    """Return the cost of each stage."""
    with tempfile.TemporaryDirectory() as folder:
        fake = FakeNvml(Path(folder, "driver"), node())
        environ = {**CACHED, **fake.environment()}
        daemon = Daemon(Path(folder, "daemon"), environ, (), (*PROGRAM, SERVE))
        try:
            wait_until(lambda: len(daemon.metrics().rows("gpu_workload_info")) == PODS)
            return {name: _stage(daemon, paths, seconds) for name, paths in STAGES.items()}
        finally:
            daemon.kill()


def _stage(daemon: Daemon, paths: Sequence[str], seconds: float) -> Cost:
    pid, scrapers = daemon.pid, {path: Scraper(daemon.port, path) for path in paths}
    try:
        _scrape(scrapers, min(SETTLE_SECONDS, seconds))
        cpu, began = cpu_seconds(pid), time.monotonic()
        taken, answers = _scrape(scrapers, seconds)
        percent = 100 * (cpu_seconds(pid) - cpu) / (time.monotonic() - began)
        return Cost(percent, rss_mb(pid), taken, answers)
    finally:
        for scraper in scrapers.values():
            scraper.close()


def _scrape(
    scrapers: dict[str, Scraper], seconds: float
) -> tuple[tuple[float, ...], dict[str, Answer]]:
    """Scrape all once a second for so long."""
    deadline, taken = time.monotonic() + seconds, []
    answers: dict[str, Answer] = {}
    while time.monotonic() < deadline:
        due = time.monotonic() + 1.0
        for path, scraper in scrapers.items():
            answers[path] = scraper.scrape()
            if path == OWN:
                taken.append(answers[path].seconds)
        time.sleep(max(0.0, min(due, deadline) - time.monotonic()))
    return tuple(taken), answers


def _rows(costs: dict[str, Cost]) -> list[list[str]]:
    rows, before = [], 0.0
    for number, (name, cost) in enumerate(costs.items()):
        taken = sorted(cost.seconds)
        rows.append(
            [
                name,
                f"{cost.cpu_percent:.2f}",
                f"{cost.cpu_percent - before:.2f}" if number else "-",
                f"{statistics.median(taken) * 1e3:.2f}" if taken else "-",
                f"{taken[int(0.99 * (len(taken) - 1))] * 1e3:.2f}" if taken else "-",
                f"{cost.rss_mb:.1f}",
            ]
        )
        before = cost.cpu_percent
    return rows


def _page_rows(costs: dict[str, Cost]) -> list[list[str]]:
    rows = []
    for before, cost in itertools.pairwise(costs.values()):
        (path,) = cost.answers.keys() - before.answers.keys()
        answer = cost.answers[path]
        added = (cost.cpu_percent - before.cpu_percent) * 10.0
        peer = peer_milliseconds(answer)
        rows.append(
            [
                path,
                str(series(answer.text())),
                f"{len(answer.text()) / 1000:.0f}",
                f"{len(answer.body) / 1000:.0f}",
                f"{peer:.1f}",
                f"{added:.1f}",
                f"{added / peer:.2f}",
            ]
        )
    return rows


class _Ready:
    """A collector whose metrics are there, so that only writing them is measured."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> list[Metric]:
        """Return them."""
        return self._metrics


def peer_milliseconds(answer: Answer) -> float:
    """Return the CPU time in which client_python writes the samples of a page, gzipped as ours."""
    is_open = answer.headers["content-type"].startswith("application/openmetrics-text")
    parse, write = (
        (parse_openmetrics, generate_openmetrics) if is_open else (parse_text, generate_latest)
    )
    registry = CollectorRegistry()
    registry.register(_Ready(parse(answer.text())))
    times = []
    for _ in range(PEER_ROUNDS):
        began = time.thread_time()
        encoded(write(registry), zipped=True)
        times.append((time.thread_time() - began) * 1e3)
    return statistics.median(times)


def missed(costs: dict[str, Cost]) -> list[str]:
    """Return in one line each target that is missed, by the stage in which both pages are asked."""
    cost = costs[f"and {LEGACY}"]
    problems = []
    if cost.cpu_percent > CPU_PERCENT:
        problems.append(f"{cost.cpu_percent:.2f} % of a core, target {CPU_PERCENT:g}")
    median = statistics.median(cost.seconds) * 1e3
    if median > SCRAPE_MILLISECONDS:
        problems.append(f"{OWN} takes {median:.2f} ms, target {SCRAPE_MILLISECONDS:g}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
