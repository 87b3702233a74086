# SPDX-License-Identifier: Apache-2.0
"""How many series a node has, and each GPU, MIG instance, rank, process and pod on it.

A node of eight GPUs has as many as the demo's, at most, within an hour.

``python -m tests.deploy.series FILE`` writes the numbers into docs/deploy.md (`make docs`).
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from unittest import mock

from exporter.cli.config import load
from exporter.cli.wiring import Parts
from exporter.clock import Clock
from exporter.exposition.family import Level
from exporter.web.server.counts import Counts
from tests.clocks import ManualClock

HOUR_SECONDS = 3600
STEP_SECONDS = 30
GPUS = 8
LEVELS: tuple[Level, ...] = ("core", "full")
PHRASE = re.compile(r"(?<=\*\*)[\d,]+(?=\*\* series at level \*(full|core)\*)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "pod": ("gpu", "workload_id"),
    "process": ("gpu", "pid"),
    "rank": ("training_job", "rank"),
    "MIG instance": ("gpu", "gpu_instance"),
    "GPU": ("gpu",),
    "node": (),
}
"""What a series is of, and the labels that name it; the first whose labels it has all."""


def series(page: str) -> list[str]:
    """Return the series of a page: names with labels."""
    return [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]


def subject(name: str) -> tuple[str, ...]:
    """Return what a series is of, and which one of these."""
    labels = dict(LABEL.findall(name))
    kind = next(kind for kind, wanted in SUBJECTS.items() if labels.keys() >= set(wanted))
    return kind, *(labels[label] for label in SUBJECTS[kind])


def most_of_each(pages: Iterable[Sequence[str]]) -> dict[str, int]:
    """Return the most series of one subject on one page, by kind."""
    most: dict[str, int] = {}
    for page in pages:
        found: dict[tuple[str, ...], int] = {}
        for name in page:
            of = subject(name)
            found[of] = found.get(of, 0) + 1
        for (kind, *_), count in found.items():
            most[kind] = max(most.get(kind, 0), count)
    return most


@cache
def demo_pages(level: Level, *words: str) -> tuple[Sequence[str], ...]:
    """Return the series of the demo's pages of an hour."""
    return tuple(series(page) for page in _demo_pages(level, words))


def _demo_pages(level: Level, words: Sequence[str]) -> Iterator[str]:
    clock = ManualClock(0.0, 0.0)
    flags = ("--demo", f"--metrics.level={level}", f"--poll.interval={STEP_SECONDS}s", *words)
    for page in itertools.islice(node_pages(flags, clock), HOUR_SECONDS // STEP_SECONDS):
        assert page.count("\ngpu_up{") == GPUS
        clock.advance(STEP_SECONDS)
        yield page


def node_pages(flags: Sequence[str], clock: Clock) -> Iterator[str]:
    """Return the pages of a node, one for each tick, at which the clock stands where it is then."""
    with mock.patch("exporter.cli.wiring.node_clock", return_value=clock):
        parts = Parts(load(flags, {}), Counts())

    def ticked() -> str:
        parts.publisher.tick()
        return parts.pages.page("text-0.0.4", zipped=False).decode()

    return iter(ticked, None)


def most_series() -> Mapping[str, int]:
    """Return the most series of the demo's node by level."""
    return {level: max(map(len, demo_pages(level))) for level in LEVELS}


def written(page: str) -> str:
    """Return a page with the numbers that are true now."""
    most = most_series()
    return PHRASE.sub(lambda found: f"{most[found[1]]:,}", page)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
