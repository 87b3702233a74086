# SPDX-License-Identifier: Apache-2.0
"""Pages of the exporter as the series that promtool takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from prometheus_client.parser import text_string_to_metric_families

from tests.clocks import ManualClock
from tests.deploy.series import node_pages
from tests.rules.promtool import STEP_SECONDS, Series, Value

POLL_SECONDS = 15


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
    pages = node_pages(("--demo", f"--poll.interval={POLL_SECONDS}s"), clock)
    while clock.time() < seconds:
        for _ in range(STEP_SECONDS // POLL_SECONDS):
            page = next(pages)
            clock.advance(POLL_SECONDS)
        scrapes.add(page.encode())
    return scrapes, page.encode()
