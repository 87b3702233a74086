# SPDX-License-Identifier: Apache-2.0
"""Pages of the exporter as the series that promtool takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.publisher import Publisher, Rules
from exporter.sources.fleet.session import SessionOptions
from exporter.sources.nvml import GPM
from exporter.specs import load_specs
from tests.clocks import ManualClock
from tests.deploy.series import node_pages
from tests.fake_nvml import FakeNvml
from tests.rules.promtool import STEP_SECONDS, Series, Value
from tests.sources.conftest import START, Rig
from tests.sources.dcgm.nodes import OneGpu

POLL_SECONDS = 5
DEMO_POLL_SECONDS = 15


class Scrapes:
    """What a scrape every `STEP_SECONDS` found on the pages of one node, under some names."""

    def __init__(self, instance: str, names: Collection[str]) -> None:
        self._target = {"job": "gpus", "instance": instance}
        self._names = frozenset(names)
        self._samples: dict[tuple[str, frozenset[tuple[str, str]]], dict[int, float]] = {}
        self._count = 0

    def add(self, page: bytes) -> None:
        """Scrape a page."""
        wanted = (
            line + "\n"
            for line in page.decode().splitlines()
            if line.partition("{")[0].partition(" ")[0] in self._names
        )
        for family in text_string_to_metric_families("".join(wanted)):
            for sample in family.samples:
                labels = frozenset((sample.labels | self._target).items())
                self._samples.setdefault((sample.name, labels), {})[self._count] = sample.value
        self._count += 1

    @property
    def end(self) -> float:
        """Seconds from the first scrape to the last."""
        return (self._count - 1) * float(STEP_SECONDS)

    def series(self) -> list[Series]:
        """Return what was scraped."""
        return [
            Series(name, dict(labels), _by_scrape(values))
            for (name, labels), values in self._samples.items()
        ]


def _by_scrape(values: Mapping[int, float]) -> Value:
    return lambda at: values.get(int(at // STEP_SECONDS))


def of_demo(names: Collection[str], seconds: float) -> tuple[Scrapes, bytes]:
    """What is scraped of the demo from its start on, and its last page."""
    clock, scrapes, page = ManualClock(0.0, 0.0), Scrapes("node-1:19400", names), ""
    pages = node_pages(("--demo", f"--poll.interval={DEMO_POLL_SECONDS}s"), clock)
    while clock.time() < seconds:
        for _ in range(STEP_SECONDS // DEMO_POLL_SECONDS):
            page = next(pages)
            clock.advance(DEMO_POLL_SECONDS)
        scrapes.add(page.encode())
    return scrapes, page.encode()


class _OneGpu(OneGpu):
    """The readers of one GPU whose session a test reads in its own thread."""

    def __init__(self, rig: Rig) -> None:
        self._session = rig.session(SessionOptions(counters=(GPM,)))

    def round(self, wait_seconds: float) -> None:
        self.reading = self._session.read()


class Node:
    """A fake driver's GPU through pynvml, session, publisher and page."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, names: Collection[str], **device: Any
    ) -> None:
        """Read such a GPU; what is scraped of it are the metrics of these names."""
        fake = FakeNvml(folder, {"devices": [device]}, clock=START)
        self._rig = Rig(fake, monkeypatch)
        self._pages = Pages(RenderOptions())
        self._specs = load_specs()
        self._publisher = Publisher(
            _OneGpu(self._rig), self._specs, self._rules(None), self._rig, (self._pages.publish,)
        )
        self.scrapes = Scrapes("node-1:19400", names)

    @staticmethod
    def _rules(precision: str | None) -> Rules:
        return Rules(interval_seconds=POLL_SECONDS, precision=precision)

    def run(self, scrapes: int, *, precision: str | None = None, **device: Any) -> None:
        """Go on for some scrapes, as a GPU with these readings and tensor work of a precision."""
        self._publisher.reconfigure(self._specs, self._rules(precision))
        if device:
            self._rig.fake.device(0, **device)
        for _ in range(scrapes):
            for _ in range(STEP_SECONDS // POLL_SECONDS):
                self._rig.advance(POLL_SECONDS)
                self._publisher.tick()
            self.scrapes.add(self._pages.page("text-0.0.4", zipped=False))
