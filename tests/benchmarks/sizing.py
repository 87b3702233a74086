# SPDX-License-Identifier: Apache-2.0
"""What does a series cost Prometheus and VictoriaMetrics, and what does a new pod or rank add?

Nodes of the demo, simulated for some hours, are written as the past of each store. Prometheus then
scrapes them, evaluates all rules, and at last finds another pod and another rank on each GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from deploy.prometheus.render_rules import rules
from deploy.prometheus.thresholds import load
from tests.benchmarks.remote_write import (
    encode_labels,
    encode_samples,
    encode_series,
    requests,
    write,
)
from tests.benchmarks.rig import machine, rss_mb, table
from tests.benchmarks.rules import (
    CORES,
    REMOTE_WRITE,
    REQUEST_SERIES,
    REQUEST_STEPS,
    SCRAPE_SECONDS,
    config,
    instance,
    reload,
    served,
)
from tests.clocks import ManualClock
from tests.deploy.series import GPUS, node_pages, series, subject
from tests.e2e.prometheus import PrometheusServer
from tests.e2e.stores import Samples, VictoriaMetrics, parsed, samples_of
from tests.rules.rules import at_one_interval
from tests.serving import answer_of, free_port
from tests.waiting import wait_until

JITTER_SECONDS = 0.0005
"""A daemon's intervals are not whole milliseconds, and its counters are no round numbers."""
SEEDS = 4
RECORDED = '{__name__=~".+:.+|ALERTS.*"}'
NAMED = {
    "pod": re.compile(r'(workload_pod|workload_id)="([^"]+)"'),
    "rank": re.compile(r'(training_job)="([^"]+)"'),
}
"""The labels that no other pod, or no other job, has."""
NEXT = "-next"
RULES_INTERVAL = "10s"


@dataclass
class Simulated:
    """The past of one node's page, scraped every `SCRAPE_SECONDS`, and its last page."""

    samples: dict[str, Samples] = field(default_factory=dict)
    page: str = ""


def simulated(seed: int, hours: float, end: int) -> Simulated:
    """Return a node that was simulated until a Unix time."""
    drift, node = random.Random(seed), Simulated()
    start = end - round(hours * 3600)
    clock = ManualClock(float(start), 0.0)
    flags = ("--demo", f"--demo.seed={seed}", f"--poll.interval={SCRAPE_SECONDS}s")
    ticks = node_pages(flags, clock)

    def pages() -> Iterator[tuple[int, str]]:
        for at in range(start, end, SCRAPE_SECONDS):
            clock.advance(at + drift.gauss(0.0, JITTER_SECONDS) - clock.time() + SCRAPE_SECONDS)
            node.page = next(ticks)
            yield 1000 * at, node.page

    node.samples = samples_of(pages())
    return node


def past(nodes: Sequence[Simulated], count: int, start: int, end: int) -> Iterator[bytes]:
    """Yield the series of the past of `count` nodes, some minutes of all of them after the other;
    one node is like another."""
    labels = [
        [
            encode_labels(parsed(name, instance(number)))
            for name in nodes[number % len(nodes)].samples
        ]
        for number in range(count)
    ]
    step = REQUEST_STEPS * SCRAPE_SECONDS
    for first in range(start, end, step):
        until = 1000 * (first + step)
        blobs = [
            [
                encode_samples(each for each in samples if 1000 * first <= each[0] < until)
                for samples in node.samples.values()
            ]
            for node in nodes
        ]
        for number in range(count):
            for name, blob in zip(labels[number], blobs[number % len(nodes)], strict=True):
                if blob:
                    yield encode_series(name, blob)


class Measured(PrometheusServer):
    """A Prometheus whose memory and blocks can be measured."""

    def heap_bytes(self) -> float:
        """Return what is left in memory after a garbage collection."""
        self._read("/debug/pprof/heap?gc=1")
        found = re.search(rb"^go_memstats_heap_alloc_bytes (\S+)", self._read("/metrics"), re.M)
        assert found
        return float(found[1])

    def head_series(self) -> int:
        """Return how many series are in memory, also those that have ended."""
        return int(self.get("status/tsdb")["headStats"]["numSeries"])

    def block(self, data: Path) -> tuple[int, int, int]:
        """Write all that it has as blocks; return samples, bytes of chunks, bytes of the rest."""
        answer = json.loads(self._read("/api/v1/admin/tsdb/snapshot", b""))
        folder = data / "snapshots" / answer["data"]["name"]
        metas = [json.loads(file.read_text()) for file in folder.glob("*/meta.json")]
        sizes = {file: file.stat().st_size for file in folder.rglob("*") if file.is_file()}
        chunks = sum(size for file, size in sizes.items() if file.parent.name == "chunks")
        samples = sum(meta["stats"]["numSamples"] for meta in metas)
        return samples, chunks, sum(sizes.values()) - chunks

    def recorded(self) -> set[str]:
        """Return the series that rules record, and those of alerts."""
        return {json.dumps(row["metric"], sort_keys=True) for row in self.query(RECORDED)}

    def settled(self, seconds: float) -> set[str]:
        """Return them once no new one has come for so long."""
        known, since = self.recorded(), time.monotonic()
        while time.monotonic() - since < seconds:
            threading.Event().wait(2.0)
            now = self.recorded()
            if now - known:
                since = time.monotonic()
            known |= now
        return self.recorded()

    def _read(self, path: str, data: bytes | None = None) -> bytes:
        return answer_of(f"http://{self.address}{path}", data, timeout=120)


def renamed(page: str) -> str:
    """Return a page on which each pod and each rank's job has been replaced by another."""
    for labels in NAMED.values():
        page = labels.sub(rf'\1="\2{NEXT}"', page)
    return page


def new_series(page: str, kind: str) -> tuple[int, int]:
    """Return how many pods or ranks a page has, and the new series once all are others."""
    names = series(page)
    subjects = {of for of in map(subject, names) if of[0] == kind}
    return len(subjects), sum(NAMED[kind].search(name) is not None for name in names)


def prometheus(
    nodes: Sequence[Simulated], count: int, start: int, end: int, folder: Path, settle: float
) -> list[list[str]]:
    """Return rows of what Prometheus needs."""
    program = shutil.which("prometheus")
    if program is None:
        raise RuntimeError("prometheus is not on the PATH")
    os.environ["GOMAXPROCS"] = str(CORES)
    data, rule_folder = folder / "prometheus" / "data", folder / "rules"
    rule_folder.mkdir()
    is_renamed = threading.Event()

    def page(number: int) -> bytes:
        last = nodes[number % len(nodes)].page
        return (renamed(last) if is_renamed.is_set() else last).encode()

    flags = (*REMOTE_WRITE, "--web.enable-admin-api")
    text = yaml.safe_dump({"global": {"scrape_interval": f"{SCRAPE_SECONDS}s"}})
    with served(page) as port:
        server = Measured(program, folder / "prometheus", port, "15s", text, flags)
        try:
            empty = server.heap_bytes()
            for request in requests(past(nodes, count, start, end), REQUEST_SERIES):
                write(f"http://{server.address}", request)
            samples, chunks, index = server.block(data)
            text = config(port, count, rule_folder, SCRAPE_SECONDS)
            (folder / "prometheus" / "prometheus.yml").write_text(text, encoding="utf-8")
            reload(server)

            def all_have(query: str) -> bool:
                found = server.query(f"count({query})")
                return bool(found) and int(found[0]["value"][1]) == count

            twice = "count_over_time(up[5m]) >= 2"
            wait_until(lambda: all_have(twice), 120, "two scrapes of each node")
            head, heap = server.head_series(), server.heap_bytes() - empty
            for name, content in rules(load(at_one_interval(folder, RULES_INTERVAL))).items():
                (rule_folder / name).write_text(content, encoding="utf-8")
            reload(server)
            recorded = server.settled(settle)
            rss = rss_mb(server.pid)
            with_rules = server.heap_bytes() - empty
            rows = [
                ["bytes a sample, chunks", f"{chunks / samples:.2f}"],
                ["bytes a sample, with index", f"{(chunks + index) / samples:.2f}"],
                ["kB of memory a series", f"{heap / head / 1000:.2f}"],
                ["kB a recorded one", f"{(with_rules - heap) / len(recorded) / 1000:.2f}"],
                ["RSS MB", f"{rss:.0f}"],
                ["series in memory", str(head)],
                ["recorded a GPU", f"{len(recorded) / count / GPUS:.1f}"],
            ]
            is_renamed.set()
            others = f'count by (instance) ({{workload_id=~".+{NEXT}"}})'
            wait_until(lambda: all_have(others), 120, "a scrape of each node with other names")
            new = server.settled(settle) - recorded
            of_ranks = sum(NEXT in json.loads(one).get("training_job", "") for one in new)
            recorded_new = {"pod": len(new) - of_ranks, "rank": of_ranks}
            for kind, counted in recorded_new.items():
                found = [
                    new_series(nodes[number % len(nodes)].page, kind) for number in range(count)
                ]
                subjects, scraped_new = map(sum, zip(*found, strict=True))
                rows += [
                    [f"new series a {kind}, scraped", f"{scraped_new / subjects:.1f}"],
                    [f"new series a {kind}, recorded", f"{counted / subjects:.1f}"],
                ]
        finally:
            server.kill()
    return rows


def victoria_metrics(
    nodes: Sequence[Simulated], count: int, start: int, end: int, folder: Path
) -> list[list[str]]:
    """Return a row of what VictoriaMetrics keeps of the same past."""
    program = shutil.which("victoria-metrics")
    if program is None:
        return []
    server = VictoriaMetrics(program, folder / "victoria-metrics", free_port())
    try:
        for request in requests(past(nodes, count, start, end), REQUEST_SERIES):
            write(f"http://{server.address}", request)
        server.settle()
        rss = rss_mb(server.pid)
    finally:
        server.stop()
    data = folder / "victoria-metrics" / "data"
    files = {file: file.stat().st_size for file in data.rglob("*") if file.is_file()}
    values = sum(size for file, size in files.items() if file.is_relative_to(data / "data"))
    samples = sum(
        len(each) for number in range(count) for each in nodes[number % len(nodes)].samples.values()
    )
    return [
        ["VictoriaMetrics: bytes a sample, values", f"{values / samples:.2f}"],
        ["bytes a sample, with index", f"{sum(files.values()) / samples:.2f}"],
        ["RSS MB", f"{rss:.0f}"],
    ]


def main(words: Sequence[str] | None = None) -> None:
    """Print one line for each number."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--hours", type=float, default=2.5)
    parser.add_argument("--settle", type=float, default=45, help="wait so long for records")
    arguments = parser.parse_args(words)
    end = int(time.time()) // SCRAPE_SECONDS * SCRAPE_SECONDS
    start = end - round(arguments.hours * 3600)
    count = arguments.nodes
    nodes = [simulated(seed, arguments.hours, end) for seed in range(min(SEEDS, count))]
    with tempfile.TemporaryDirectory() as name:
        rows = prometheus(nodes, count, start, end, Path(name), arguments.settle)
        rows += victoria_metrics(nodes, count, start, end, Path(name))
    print(machine().partition("; ")[0])
    print(f"{count} nodes x {GPUS} GPUs, {arguments.hours:g} h every {SCRAPE_SECONDS} s\n")
    print(table(["number", "measured"], rows))


if __name__ == "__main__":
    main()
