# SPDX-License-Identifier: Apache-2.0
"""What do all rules, and the dashboards at scale, cost a Prometheus that scrapes a fleet of nodes?

One process serves the page of every node: the demo's, with only the families that rules and these
dashboards read. The server gets a past as long as the windows of the rules, so that these are full:
of what it scrapes first, and of what it records as soon as it does.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from signal import SIGHUP
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from deploy.prometheus.render_rules import rules
from deploy.prometheus.thresholds import THRESHOLDS, load, seconds
from exporter.exposition.catalogue import CATALOGUE
from tests.benchmarks import cpu_profile, panels, recorded
from tests.benchmarks.remote_write import (
    encode_labels,
    encode_samples,
    encode_series,
    requests,
    write,
)
from tests.benchmarks.rig import cpu_seconds, machine, table
from tests.e2e.daemons import Daemon
from tests.e2e.processes import Process
from tests.e2e.prometheus import PrometheusServer
from tests.rules.promtool import version
from tests.rules.rules import at_one_interval
from tests.serving import answer_of, serving
from tests.waiting import wait_until

SCRAPE_SECONDS = 15
CORES = 2
GPUS = 8
NOW = frozenset({"roofline_exporter_snapshot_timestamp_seconds"})
WARM_UP_SECONDS = 20.0
SHORT_SECONDS = 300.0
"""Windows up to this fill while the benchmark runs."""
REQUEST_SERIES = 2000
REQUEST_STEPS = 60
JOB = "roofline-exporter"
HEAD = (
    *("group", "rules", "interval s", "median s", "longest s", "% of interval", "cores"),
    "slowest rule",
)
LATE = {"storage": {"tsdb": {"out_of_order_time_window": "1d"}}}
REMOTE_WRITE = ("--web.enable-remote-write-receiver",)
_READ = re.compile(r"(?<![\w:])((?:gpu|roofline_exporter)_\w+)(?![\w:])(?:\{[^}]*\})?(\[(\w+)\])?")


@dataclass(frozen=True)
class Sample:
    """A series of a page: a gauge's value, or what a counter grows by in a second."""

    name: str
    labels: dict[str, str]
    value: float
    counts: bool

    def at(self, since: float) -> float:
        return self.value * since if self.counts else self.value


def expressions(texts: Iterable[str]) -> list[str]:
    """Return the expressions of the rules in these files."""
    groups = [group for text in texts for group in yaml.safe_load(text)["groups"]]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def _records(text: str) -> list[str]:
    """Return what a file of rules records."""
    groups = yaml.safe_load(text)["groups"]
    return [rule["record"] for group in groups for rule in group["rules"]]


def rules_read(texts: Iterable[str]) -> dict[str, float]:
    """Return the families that rules read, with the longest window in seconds of each."""
    found: dict[str, float] = {}
    for expression in expressions(texts):
        for name, _, window in _READ.findall(expression):
            if name in CATALOGUE:
                length = seconds(window) if window else 0.0
                found[name] = max(found.get(name, 0.0), length)
    return found


def demo_page(directory: Path, families: Sequence[str], warm_up: float) -> list[Sample]:
    """Return the series of these families on the demo's page; gauges stay, counters go on."""
    daemon = Daemon(directory, {}, ("--demo", "--no-source.training"))
    try:
        daemon.wait_for_gpus(GPUS)
        threading.Event().wait(warm_up)
        observed = max(v for _, v in daemon.metrics().rows("gpu_observed_seconds_total"))
        wanted = "&".join(f"name[]={name}" for name in families)
        page_text = daemon.get(f"/metrics?{wanted}").text
    finally:
        daemon.kill()
    return [
        Sample(
            one.name,
            dict(one.labels),
            one.value / observed if family.type == "counter" else one.value,
            family.type == "counter",
        )
        for family in text_string_to_metric_families(page_text)
        for one in family.samples
    ]


class Fleet:
    """The pages of all nodes; each has GPUs and ranks of its own, and the same values."""

    def __init__(self, samples: Sequence[Sample], nodes: int) -> None:
        self.samples = samples
        self.nodes = nodes
        self.started = time.time()
        """When the counters were 0; moved back by the past that was written."""
        self._templates = [
            "".join(f"{self._series(sample, node)} %s\n" for sample in samples)
            for node in range(nodes)
        ]

    def labels(self, sample: Sample, node: int) -> dict[str, str]:
        """Return the labels of a series on one node; jobs span the nodes."""
        labels = dict(sample.labels)
        if "uuid" in labels:
            labels["uuid"] = f"{labels['uuid'][:-5]}-{node:04d}"
        if "rank" in labels:
            labels["rank"] = str(node)
        return labels

    def _scraped(self, sample: Sample, node: int) -> dict[str, str]:
        """Return the labels of a series once it was scraped."""
        target = {"__name__": sample.name, "job": JOB, "instance": instance(node)}
        return {**self.labels(sample, node), **target}

    def _series(self, sample: Sample, node: int) -> str:
        labels = self.labels(sample, node)
        inside = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
        return f"{sample.name}{{{inside}}}" if inside else sample.name

    def page(self, node: int) -> bytes:
        """Return a node's page now."""
        now = time.time()
        since = now - self.started
        numbers = (now if one.name in NOW else one.at(since) for one in self.samples)
        return (self._templates[node] % tuple(map(repr, numbers))).encode()

    def past(self, windows: dict[str, float], longest: float) -> Iterator[bytes]:
        """Yield what gives each series as much past as the rules look at, some minutes of all
        series after the other."""
        end = time.time() - SCRAPE_SECONDS
        spans = {name: min(window, longest) for name, window in windows.items()}
        span = max(spans.values())
        self.started = end - span - 60.0
        rows = [
            (sample, encode_labels(self._scraped(sample, node)), spans[sample.name])
            for node in range(self.nodes)
            for sample in self.samples
            if spans[sample.name] > SHORT_SECONDS
        ]
        step_count = int(span // SCRAPE_SECONDS)
        for first in range(0, step_count, REQUEST_STEPS):
            times = [
                end - span + step * SCRAPE_SECONDS
                for step in range(first, min(first + REQUEST_STEPS, step_count))
            ]
            # Nodes have the same values, so that few runs of samples are written out.
            blobs: dict[tuple[bool, float], bytes] = {}
            for sample, labels, length in rows:
                if times[-1] < end - length:
                    continue
                key = (sample.counts, sample.value)
                if key not in blobs:
                    blobs[key] = encode_samples(
                        (int(at * 1000), sample.at(at - self.started)) for at in times
                    )
                yield encode_series(labels, blobs[key])


def instance(node: int) -> str:
    return f"node-{node:04d}:19400"


@contextmanager
def served(page: Callable[[int], bytes]) -> Iterator[int]:
    """Serve /0/metrics, /1/metrics …, each the page of a node; the port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = gzip.compress(page(int(self.path.split("/")[1])), 1)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Prometheus cuts its connections when it stops; anything else is shown."""
            if not isinstance(sys.exc_info()[1], ConnectionError):
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serving(server) as port:
        yield port


def config(port: int, nodes: int, rule_folder: Path, scrape_seconds: int) -> str:
    """Return a configuration that scrapes all nodes from one port."""
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": f"{scrape_seconds}s"},
            **LATE,
            "rule_files": [f"{rule_folder}/*.yml"],
            "scrape_configs": [
                {
                    "job_name": JOB,
                    "static_configs": [
                        {
                            "targets": [f"127.0.0.1:{port}"],
                            "labels": {
                                "instance": instance(node),
                                "__metrics_path__": f"/{node}/metrics",
                            },
                        }
                        for node in range(nodes)
                    ],
                }
            ],
        }
    )


@dataclass
class Group:
    """A group of rules, and how long its evaluations took."""

    rules: int
    interval: float
    last: str = ""
    seconds: list[float] = field(default_factory=list)
    each: dict[str, float] = field(default_factory=dict)
    """The seconds that each rule took the last time."""
    cpu: float = 0.0
    """The server's CPU seconds while all were asked once more, above what it takes anyway."""

    @property
    def slowest(self) -> str:
        """The rule that took longest the last time."""
        name = max(self.each, key=lambda one: self.each[one])
        return f"{name} {self.each[name]:.2f}"

    @property
    def cores(self) -> float:
        """Cores that its rules need, without the texts of alerts and what they record."""
        return self.cpu / self.interval

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def share(self) -> float:
        return self.median / self.interval


def watch(
    server: PrometheusServer, least_seconds: float, settle_seconds: float
) -> dict[str, Group]:
    """Watch evaluations until every group had one after it settled; a failing rule ends it."""
    groups: dict[str, Group] = {}
    started = time.monotonic()
    while True:
        passed = time.monotonic() - started
        for one in server.get("rules")["groups"]:
            group = groups.setdefault(one["name"], Group(len(one["rules"]), float(one["interval"])))
            for rule in one["rules"]:
                if rule["health"] == "err":
                    raise RuntimeError(f"{rule['name']}: {rule['lastError']}")
            if one["lastEvaluation"] != group.last:
                group.last = one["lastEvaluation"]
                if passed > settle_seconds and one["evaluationTime"] > 0:
                    group.seconds.append(float(one["evaluationTime"]))
                    group.each = {r["name"]: float(r["evaluationTime"]) for r in one["rules"]}
        if passed > least_seconds and all(group.seconds for group in groups.values()):
            return groups
        # Each answer has the texts of all alerts: asked often, that is half of what the rules cost.
        threading.Event().wait(min(group.interval for group in groups.values()) / 6)


def measure_cpu(server: PrometheusServer, groups: dict[str, Group], cores: float) -> None:
    """Ask each rule's expression once, and note what that costs a server that uses so many cores
    meanwhile."""
    for one in server.get("rules")["groups"]:
        for rule in one["rules"]:
            before, began = cpu_seconds(server.pid), time.monotonic()
            server.query(rule["query"])
            meanwhile = cores * (time.monotonic() - began)
            groups[one["name"]].cpu += max(0.0, cpu_seconds(server.pid) - before - meanwhile)


def _cores(pid: int, window_seconds: float) -> float:
    before, began = cpu_seconds(pid), time.monotonic()
    threading.Event().wait(window_seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - began)


def _cores_by_part(address: str, seconds: int) -> dict[str, float]:
    url = f"http://{address}/debug/pprof/profile?seconds={seconds}"
    found = cpu_profile.seconds_by_part(answer_of(url, timeout=seconds + 60))
    return {part: spent / seconds for part, spent in found.items()}


def benchmark(
    arguments: argparse.Namespace, directory: Path
) -> tuple[list[str], dict[str, Group], list[panels.Answer]]:
    """Scrape, then scrape and record, then ask what the dashboards ask; return what the server had
    and needed in all, in words, what each group took, and the answers."""
    interval = arguments.interval
    texts = rules(load(at_one_interval(directory, interval) if interval else THRESHOLDS))
    if not arguments.queries:
        del texts["queries.yml"]
    rule_folder = directory / "rules"
    rule_folder.mkdir()
    windows = dict.fromkeys(panels.families_read(), 0.0) | rules_read(texts.values())
    found = recorded.windows(expressions(texts.values()), SHORT_SECONDS)
    spans = {name: min(window, arguments.history) for name, window in found.items()}
    spans |= dict.fromkeys(_records(texts["scale.yml"]), arguments.history)
    samples = demo_page(directory / "demo", sorted(windows), arguments.warm_up)
    fleet = Fleet(samples, arguments.nodes)
    program = shutil.which("prometheus")
    if program is None:
        raise RuntimeError("prometheus is not on the PATH")
    with served(fleet.page) as port:
        os.environ["GOMAXPROCS"] = str(CORES)
        text = config(port, arguments.nodes, rule_folder, arguments.scrape)
        empty = yaml.safe_dump({"global": {"scrape_interval": "15s"}, **LATE})
        server = PrometheusServer(
            program, directory / "prometheus", port, "15s", empty, REMOTE_WRITE
        )
        try:
            began = time.monotonic()
            for request in requests(fleet.past(windows, arguments.history), REQUEST_SERIES):
                write(f"http://{server.address}", request)
            past = time.monotonic() - began
            (directory / "prometheus" / "prometheus.yml").write_text(text, encoding="utf-8")
            reload(server)
            threading.Event().wait(arguments.scrape)
            scrape_cores = _cores(server.pid, arguments.settle)
            for name, content in texts.items():
                (rule_folder / name).write_text(content, encoding="utf-8")
            reload(server)
            filled = recorded.fill(server, spans, arguments.recorded)
            threading.Event().wait(arguments.settle)
            before, began = cpu_seconds(server.pid), time.monotonic()
            groups = watch(server, arguments.seconds, arguments.settle)
            cores = (cpu_seconds(server.pid) - before) / (time.monotonic() - began)
            by_part = _cores_by_part(server.address, arguments.profile)
            measure_cpu(server, groups, cores)
            counted = int(server.query('count({__name__=~".+:.+"})')[0]["value"][1])
            answers = list(panels.answers(server, arguments.scrape))
            status = server.get("status/tsdb")["headStats"]
            firing = len(server.get("alerts")["alerts"])
        finally:
            server.kill()
    scraped = len(samples) * arguments.nodes
    parts = ", ".join(f"{part} {each:.3f}" for part, each in by_part.items())
    words = [
        f"{arguments.nodes} nodes x {GPUS} GPUs, {scraped} series scraped every "
        f"{arguments.scrape} s, {status['numSeries']} series in all, {firing} alerts; "
        f"a past of {arguments.history / 3600:g} h was written in {past:.0f} s, and that of "
        f"{len(filled)} of {len(spans)} recorded families read over hours",
        f"cores: {scrape_cores:.2f} while it scrapes, {cores:.2f} with the rules, which record "
        f"{counted / arguments.nodes:.0f} series a node",
        f"of these by its profile: {parts}",
    ]
    return words, groups, answers


def reload(server: Process) -> None:
    """Have Prometheus read its configuration and rules again."""
    loaded = "Completed loading of configuration file"
    before = len(server.lines(loaded))
    server.signal(SIGHUP)
    wait_until(lambda: len(server.lines(loaded)) > before, 60)


def main(words: Sequence[str] | None = None) -> None:
    """Print one line for each group."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=150, help="watch at least so long")
    parser.add_argument("--settle", type=float, default=60, help="do not count so long")
    parser.add_argument("--history", type=float, default=6 * 3600, help="seconds of past at most")
    parser.add_argument("--recorded", type=float, default=240, help="wait so long for records")
    parser.add_argument("--scrape", type=int, default=SCRAPE_SECONDS, help="seconds between")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_SECONDS, help="of the demo")
    parser.add_argument("--profile", type=int, default=180, help="seconds of CPU profile")
    parser.add_argument("--interval", default="", help="of all groups, instead of their own")
    parser.add_argument("--queries", action="store_true", help="with those for own queries")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as directory:
        lines, groups, answers = benchmark(arguments, Path(directory))
    numbers = ".".join(map(str, version("prometheus")))
    print(f"{machine().partition('; ')[0]}; prometheus {numbers}")
    print("\n".join(lines), end="\n\n")
    rows = [
        [
            name,
            str(group.rules),
            f"{group.interval:g}",
            f"{group.median:.3f}",
            f"{max(group.seconds):.3f}",
            f"{100 * group.share:.1f}",
            f"{group.cores:.4f}",
            group.slowest,
        ]
        for name, group in groups.items()
    ]
    # Each group has its turn in its own interval, on the same cores.
    everything = sum(group.share for group in groups.values())
    count = sum(group.rules for group in groups.values())
    needed = sum(group.cores for group in groups.values())
    rows.append(["all", str(count), "", "", "", f"{100 * everything:.1f}", f"{needed:.4f}", ""])
    print(table(HEAD, rows), end="\n\n")
    print("\n".join(panels.summary(answers)))


if __name__ == "__main__":
    main()
