# SPDX-License-Identifier: Apache-2.0
"""One hour of the demo, in a real Prometheus and in a real VictoriaMetrics."""

from __future__ import annotations

import json
import math
import re
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deploy.prometheus import prices, render_rules, thresholds
from tests.benchmarks.remote_write import (
    encode_labels,
    encode_samples,
    encode_series,
    write,
)
from tests.clocks import ManualClock
from tests.dashboards.grafana import Prometheus, Range, Series
from tests.dashboards.test_serving import server
from tests.deploy.series import node_pages
from tests.e2e.processes import Process
from tests.rules.promtool import Series as Promised
from tests.serving import answer_of

START = 1_709_510_400
"""2024-03-04 00:00 UTC: a multiple of all steps, and no store takes samples of the future."""
HOUR = 3600
END = START + HOUR
SCRAPE_SECONDS = 15
EVALUATION_SECONDS = 30
LEAD_SECONDS = 600
"""What is scraped before the hour, so that windows of minutes are full at its beginning."""
NODES = {"node-1:19400": "demo", "node-2:19400": "mixed"}
"""The scenario of each: the second has GPUs without counters, which have only bounds."""
SERVES = "team-b/chat-7d9f8c6b5-x2v4q"
"""The demo's pod with an inference server."""
PRICES = {"NVIDIA H100 80GB HBM3": 2.5, "Tesla T4": 0.5}
STALE: float = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
"""Prometheus's mark where a series ends."""
_BATCH = 500
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')

Samples = list[tuple[int, float]]
Labels = dict[str, str]
Answer = dict[frozenset[tuple[str, str]], dict[float, float]]


@dataclass(frozen=True)
class Written:
    """A series as it is written to a store."""

    labels: Labels
    """Its name among them."""
    samples: Samples
    """By Unix time in milliseconds."""


def parsed(series: str, instance: str) -> Labels:
    """Return the labels of a series of a node's page once it is scraped, its name among them."""
    name, _, inner = series.partition("{")
    pairs = ((key, json.loads(f'"{value}"')) for key, value in _LABEL.findall(inner))
    return {"__name__": name, **dict(pairs), "job": "roofline-exporter", "instance": instance}


def samples_of(pages: Iterable[tuple[int, str]]) -> dict[str, Samples]:
    """Return what is on pages at Unix times in milliseconds by series, marked where one ends."""
    found: dict[str, Samples] = {}
    last: set[str] = set()
    for at, page in pages:
        lines = [line for line in page.splitlines() if not line.startswith("#")]
        now = dict(line.rsplit(" ", 1) for line in lines)
        for series, value in now.items():
            found.setdefault(series, []).append((at, float(value)))
        for series in last - set(now):
            found[series].append((at, STALE))
        last = set(now)
    return found


def _scraped(instance: str, scenario: str) -> list[Written]:
    clock = ManualClock(float(START - LEAD_SECONDS), 0.0)
    flags = ("--demo", f"--demo.scenario={scenario}", f"--poll.interval={SCRAPE_SECONDS}s")

    def pages() -> Iterator[tuple[int, str]]:
        for page in node_pages(flags, clock):
            yield round(1000 * clock.time()), f"up 1\n{page}"
            clock.advance(SCRAPE_SECONDS)
            if clock.time() > END:
                return

    found = samples_of(pages())
    return [Written(parsed(series, instance), samples) for series, samples in found.items()]


def counters_change(series: Iterable[Written]) -> list[int]:
    """Unix times at which a counter of a GPU begins or ends."""
    times = set()
    for one in series:
        if one.labels["__name__"].endswith("_total"):
            gone = True
            for at, value in one.samples:
                if gone or math.isnan(value):
                    times.add(at // 1000)
                gone = math.isnan(value)
    return sorted(times)


def promised(series: Promised, times: range) -> Written:
    """What scrapes at Unix times find of a series that is given by the seconds since the first."""
    values = ((at, series.value(float(at - times.start))) for at in times)
    by_time = {float(at): float(value) for at, value in values if value is not None}
    samples = marked(by_time, times.step, times.stop - 1)
    return Written({"__name__": series.name, **series.labels}, samples)


def scraped() -> list[Written]:
    """What a scrape of each node every `SCRAPE_SECONDS` finds; marked where a series ends."""
    gpus = [one for node, scenario in NODES.items() for one in _scraped(node, scenario)]
    times = range(START - LEAD_SECONDS, END + 1, SCRAPE_SECONDS)
    return [*gpus, *(promised(each, times) for each in server(SERVES))]


class Store(Prometheus):
    """A server with the HTTP API of Prometheus that takes remote writes."""

    def send(self, series: Sequence[Written]) -> None:
        """Write series; each has samples that are newer than those that it has."""
        for first in range(0, len(series), _BATCH):
            request = b"".join(
                encode_series(encode_labels(one.labels), encode_samples(one.samples))
                for one in series[first : first + _BATCH]
            )
            write(f"http://{self.address}", request)
        self.settle()

    def settle(self) -> None:
        """Return once queries find what was written."""


PAST = "scrape_configs: []\nstorage:\n  tsdb:\n    out_of_order_time_window: 3h\n"


def prometheus(program: str, folder: Path) -> Store:
    """A Prometheus that scrapes nothing, and takes what is late."""
    flags = ["--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=100y"]
    return Store(program, folder, 0, "15s", PAST, flags)


class VictoriaMetrics(Store):
    """VictoriaMetrics of one node, with its defaults but for retention and address."""

    def __init__(self, program: str, directory: Path, port: int, flags: Sequence[str] = ()) -> None:
        self.address = f"127.0.0.1:{port}"
        words = [
            program,
            f"-storageDataPath={directory / 'data'}",
            f"-httpListenAddr={self.address}",
            "-retentionPeriod=100y",
            *flags,
        ]
        Process.__init__(self, words, directory)
        self.find_in_line("started VictoriaMetrics")

    def settle(self) -> None:
        """What is in memory is found only a second later."""
        self._call("/internal/force_flush")
        self._call("/internal/resetRollupResultCache")

    def _call(self, path: str) -> None:
        answer_of(f"http://{self.address}{path}")


@dataclass(frozen=True)
class Rule:
    """A rule of a file in deploy/prometheus/rules/."""

    file: str
    rule: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.file}/{self.rule.get('record') or self.rule['alert']}"

    @property
    def expression(self) -> str:
        text: str = self.rule["expr"]
        return text


def rules(*names: str) -> Iterator[Rule]:
    """Every rule as it is shipped, but with prices, in the order of evaluation."""
    listed = "".join(f"  {model}: {price}\n" for model, price in PRICES.items())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prices.yml"
        file.write_text(f"currency: EUR\nper_gpu_hour:\n{listed}", encoding="utf-8")
        texts = render_rules.rules(thresholds.load(), prices.load(file))
    for name in names:
        for group in yaml.safe_load(texts[f"{name}.yml"])["groups"]:
            for rule in group["rules"]:
                yield Rule(name, rule)


def over_time(
    server: Store, expression: str, start: int = START, end: int = END, step: int = 60
) -> Answer:
    """What an expression gives from one Unix time to another, but for names."""
    return nameless(server.over_time(expression, Range(end, end - start, step, rate_seconds=0)))


def nameless(found: Iterable[Series]) -> Answer:
    """By labels and time. A rule gives its own name, and what has its labels twice is one."""
    answer: Answer = {}
    for one in found:
        labels = frozenset(
            (key, value) for key, value in one["metric"].items() if value and key != "__name__"
        )
        answer.setdefault(labels, {}).update(
            {float(at): float(value) for at, value in one["values"]}
        )
    return answer


def record(
    server: Store, rule: Mapping[str, Any], start: int = START - LEAD_SECONDS, end: int = END
) -> None:
    """Evaluate a rule from one Unix time to another, and write what it records."""
    own = {**rule.get("labels", {}), "__name__": rule["record"]}
    answer = over_time(server, rule["expr"], start, end, EVALUATION_SECONDS)
    server.send(
        [
            Written({**dict(labels), **own}, marked(by_time, EVALUATION_SECONDS, end))
            for labels, by_time in answer.items()
        ]
    )


def marked(by_time: Mapping[float, float], step: int, end: int) -> Samples:
    """Return samples by Unix time, with a mark wherever the next one is missing."""
    samples: Samples = []
    for at, value in sorted(by_time.items()):
        now = round(1000 * at)
        due = samples[-1][0] + 1000 * step if samples else now
        if now > due:
            samples.append((due, STALE))
        samples.append((now, value))
    if samples and (due := samples[-1][0] + 1000 * step) <= 1000 * end:
        samples.append((due, STALE))
    return samples
