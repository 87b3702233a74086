# SPDX-License-Identifier: Apache-2.0
"""What is asked for again and again is ready at each snapshot; nothing else is rendered."""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Collection, Iterable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.exposition import pages as pages_module
from exporter.exposition.pages import LATELY, Pages
from exporter.exposition.processes import ProcessRows
from exporter.exposition.render import RenderOptions
from exporter.model.reading import Process
from exporter.model.snapshot import Snapshot
from tests import snapshots
from tests.derive.readings import known

TRAINING = snapshots.EXAMPLES["training"]
IDLE = snapshots.EXAMPLES["idle"]


@pytest.fixture
def pages() -> Pages:
    return Pages(RenderOptions())


def value(page: bytes, name: str, **labels: str) -> float:
    [found] = [
        sample.value
        for metric in parse_text(page.decode())
        for sample in metric.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return float(found)


@pytest.mark.parametrize(
    ("asked", "ahead", "rendered"),
    [
        (range(0), 0, 0),
        (range(60), 58, 60),
        (range(0, 60, LATELY), 18, 58),
        (range(0, 60, LATELY + 1), 12, 15),
        (range(0, 60, 15), 1, 4),
        ((0, 15, 30, 45, 61, 76, 91, 106), 2, 9),
    ],
    ids=["nobody asks", "each snapshot", "lately", "not lately", "every fifteenth", "once late"],
)
def test_what_is_not_asked_for_is_not_rendered(
    pages: Pages,
    monkeypatch: pytest.MonkeyPatch,
    asked: Collection[int],
    ahead: int,
    rendered: int,
) -> None:
    """A scraper that comes seldom costs one page each time: that of its scrape. It is ready once
    two scrapes came after equal times; a late one costs a page that nobody takes."""
    calls: list[str] = []
    ready = 0

    def counted(_: object, form: str) -> bytes:
        calls.append(form)
        return b"x"

    monkeypatch.setattr(pages_module, "page", counted)
    for number in range(120 if 106 in asked else 60):
        pages.publish(TRAINING)
        if number in asked:
            ready += pages.ready("text-0.0.4", False) is not None
            for _ in range(2):  # two scrapers of one snapshot
                assert pages.page("text-0.0.4", False) == b"x"
    assert (ready, len(calls)) == (ahead, rendered)


def test_asked_variants_follow_each_snapshot(pages: Pages) -> None:
    """What is asked for again and again is ready with the values of the newest snapshot."""
    for _ in range(2):
        pages.publish(TRAINING)
        page = pages.page("text-0.0.4", False)
    assert value(page, "gpu_saturation_ratio") == 0.561
    pages.publish(IDLE)
    ready = known(pages.ready("text-0.0.4", False))
    assert value(ready, "gpu_saturation_ratio") == 0
    assert pages.page("text-0.0.4", False) is ready
    assert pages.ready("openmetrics-1.0.0", False) is None


def test_gzip_is_the_same_page_and_the_same_bytes_each_time(pages: Pages) -> None:
    """Compressed pages hold the plain page, without a time stamp."""
    pages.publish(TRAINING)
    zipped = pages.page("openmetrics-1.0.0", True)
    assert gzip.decompress(zipped) == pages.page("openmetrics-1.0.0", False)
    assert len(zipped) < 0.4 * len(pages.page("openmetrics-1.0.0", False))
    assert zipped[4:8] == bytes(4)


def test_before_the_first_snapshot(pages: Pages) -> None:
    """The exporter's own state is served, and no GPU is invented."""
    text = pages.page("text-0.0.4", False).decode()
    assert "roofline_exporter_build_info{" in text
    assert "\nprocess_cpu_seconds_total " in text
    assert not re.search("^gpu_", text, re.MULTILINE)


def test_process_metrics_are_on_every_page(pages: Pages) -> None:
    """Pages end with client_python's process metrics, correctly typed in OpenMetrics."""
    pages.publish(TRAINING)
    families = {
        metric.name: metric.type
        for metric in parse_openmetrics(pages.page("openmetrics-1.0.0", False).decode())  # type: ignore[no-untyped-call]
    }
    assert families["process_cpu_seconds"] == "counter"
    assert families["process_resident_memory_bytes"] == "gauge"
    assert families["gpu"] == "info"


def test_reconfigure(pages: Pages) -> None:
    """New options hold at once for ready pages and for later ones."""
    for _ in range(2):
        pages.publish(TRAINING)
        pages.page("text-0.0.4", False)
    pages.reconfigure(RenderOptions(level="core", exclude=re.compile("gpu_up|process_.*")))
    ready = known(pages.ready("text-0.0.4", False))
    assert b"gpu_sm_occupancy_ratio" not in ready
    assert b"gpu_up" not in ready
    assert b"process_" not in ready
    assert value(ready, "gpu_saturation_ratio") == 0.561


class Parsed:
    """A page as a collector of the client library."""

    def __init__(self, page: bytes) -> None:
        parsed = parse_openmetrics(page.decode())  # type: ignore[no-untyped-call]
        self._metrics: list[Metric] = list(parsed)

    def describe(self) -> Iterable[Metric]:
        return self._metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


@pytest.mark.parametrize(
    "names",
    [
        ["gpu_up"],
        ["gpu_info", "gpu_energy_joules_total"],
        ["gpu_time_seconds_total", "gpu_nonsense"],
        ["process_cpu_seconds_total", "roofline_exporter_build_info"],
        ["nothing"],
    ],
)
def test_filter_is_that_of_the_client_library(pages: Pages, names: list[str]) -> None:
    """name[] gives the series that client_python's restricted registry gives."""
    pages.publish(TRAINING)
    registry = CollectorRegistry()
    registry.register(Parsed(pages.page("openmetrics-1.0.0", False)))
    expected = generate_latest(registry.restricted_registry(names)).decode()
    found = pages.filtered(names, "text-0.0.4", False).decode()
    assert samples(found) == samples(expected)


def samples(text: str) -> set[tuple[str, frozenset[tuple[str, str]], float]]:
    return {
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for metric in parse_text(text)
        for sample in metric.samples
    }


def test_filter_takes_names_without_suffix(pages: Pages) -> None:
    """Counters and infos are also found by their OpenMetrics name."""
    pages.publish(TRAINING)
    text = pages.filtered(["gpu", "gpu_energy_joules"], "text-0.0.4", False).decode()
    assert {name for name, _, _ in samples(text)} == {"gpu_info", "gpu_energy_joules_total"}
    zipped = pages.filtered(["gpu_up"], "openmetrics-1.0.0", True)
    assert gzip.decompress(zipped).endswith(b"# EOF\n")


def test_dropped_series_are_counted_once_a_snapshot() -> None:
    """The counter of cut series rises by what each snapshot lost, however often it is rendered."""
    memory = ProcessRows(memory=True, rows_per_share=1)
    pages = Pages(RenderOptions(processes=memory))
    gpu = snapshots.h100_training()
    processes = tuple(Process(pid, "compute", pid) for pid in (1, 2, 3))
    gpu = replace(gpu, shares=(replace(gpu.shares[0], processes=processes),))
    name, family = "roofline_exporter_series_dropped_total", "gpu_process_memory_bytes"
    assert value(pages.page("text-0.0.4", False), name, family=family) == 0
    for total in (2, 4):
        pages.publish(Snapshot(0.0, (gpu,)))
        pages.page("openmetrics-1.0.0", False)
        pages.filtered([name], "text-0.0.4", False)
        assert value(pages.page("text-0.0.4", False), name, family=family) == total


def test_many_threads_may_ask_while_one_publishes() -> None:
    """Readers always get a whole page of one snapshot."""
    pages = Pages(RenderOptions(exclude=re.compile("process_.*")))
    pages.publish(TRAINING)
    whole = {pages.page("text-0.0.4", False)}
    pages.publish(IDLE)
    whole.add(pages.page("text-0.0.4", False))
    stop = threading.Event()
    wrong: list[bytes] = []

    def ask(zipped: bool) -> None:
        while not stop.is_set():
            page = pages.ready("text-0.0.4", zipped) or pages.page("text-0.0.4", zipped)
            plain = gzip.decompress(page) if zipped else page
            if plain not in whole:
                wrong.append(plain)

    threads = [threading.Thread(target=ask, args=(bool(i % 2),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for i in range(100):
        pages.publish(TRAINING if i % 2 else IDLE)
    stop.set()
    for thread in threads:
        thread.join(timeout=10)
    assert not wrong
