# SPDX-License-Identifier: Apache-2.0
"""Pages of the exporter as the series that promtool takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

from tests.rules.promtool import STEP_SECONDS, Series, Value


class Scrapes:
    """What a scrape every `STEP_SECONDS` found on the pages of one node."""

    def __init__(self, instance: str) -> None:
        self._target = {"job": "gpus", "instance": instance}
        self._samples: dict[tuple[str, frozenset[tuple[str, str]]], dict[int, float]] = {}
        self._count = 0

    def add(self, page: bytes) -> None:
        """Scrape a page."""
        for family in text_string_to_metric_families(page.decode()):
            for sample in family.samples:
                labels = frozenset((sample.labels | self._target).items())
                self._samples.setdefault((sample.name, labels), {})[self._count] = sample.value
        self._count += 1

    @property
    def end(self) -> float:
        """Seconds from the first scrape to the last."""
        return (self._count - 1) * float(STEP_SECONDS)

    def series(self, names: Iterable[str]) -> list[Series]:
        """Return what was scraped under these names."""
        wanted = set(names)
        return [
            Series(name, dict(labels), _by_scrape(values))
            for (name, labels), values in self._samples.items()
            if name in wanted
        ]


def _by_scrape(values: Mapping[int, float]) -> Value:
    return lambda at: values.get(int(at // STEP_SECONDS))
