# SPDX-License-Identifier: Apache-2.0
"""What this process itself uses: client_python's process metrics, read at most once a second."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from prometheus_client import ProcessCollector

from exporter.exposition.render import Block, headings

_SUFFIX = {"counter": "_total"}


class ProcessMetrics:
    """The ``process_*`` families as blocks of a page."""

    def __init__(
        self,
        exclude: re.Pattern[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        max_age_seconds: float = 1.0,
        procfs: str = "/proc",
    ) -> None:
        self._collector = ProcessCollector(proc=procfs, registry=None)
        self._exclude = exclude
        self._clock = clock
        self._max_age_seconds = max_age_seconds
        self._read_at: float | None = None
        self._blocks: list[Block] = []

    def blocks(self) -> list[Block]:
        """Return the families, read again if the last reading is older than `max_age_seconds`."""
        now = self._clock()
        if self._read_at is None or now - self._read_at >= self._max_age_seconds:
            self._blocks = self._read()
            self._read_at = now
        return self._blocks

    def _read(self) -> list[Block]:
        blocks = []
        for metric in self._collector.collect():
            name = metric.name + _SUFFIX.get(metric.type, "")
            if self._exclude is not None and self._exclude.fullmatch(name):
                continue
            text = headings(name, metric.name, metric.type, "", metric.documentation)
            lines = "".join([f"{sample.name} {sample.value!r}\n" for sample in metric.samples])
            blocks.append(Block((name, metric.name), text, lines))
        return blocks
