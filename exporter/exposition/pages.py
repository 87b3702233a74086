# SPDX-License-Identifier: Apache-2.0
"""The pages that scrapers get: rendered when a snapshot is published, ready when they ask."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterable

from exporter.exposition.formats import Format
from exporter.exposition.own_process import ProcessMetrics
from exporter.exposition.parts import Node
from exporter.exposition.processes import PER_PROCESS, dropped_series
from exporter.exposition.render import Block, Renderer, RenderOptions, page
from exporter.model.daemon import Daemon
from exporter.model.snapshot import Snapshot

Variant = tuple[Format, bool]
"""A format, and whether it is gzipped."""

ACTIVE_SECONDS = 300.0
"""How long a variant is kept ready after it was last asked for."""


def _encoded(data: bytes, zipped: bool) -> bytes:
    # Level 1: a tenth of the time of level 9 for a fifth more bytes. No time stamp: same page,
    # same bytes.
    return gzip.compress(data, 1, mtime=0) if zipped else data


class Pages:
    """Keeps every variant that was asked for in the last 5 minutes ready for the next scrape.

    One thread publishes; any thread may ask.
    """

    def __init__(
        self,
        options: RenderOptions,
        clock: Callable[[], float] = time.monotonic,
        daemon: Callable[[], Daemon | None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._daemon = daemon
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._dropped = dict.fromkeys(PER_PROCESS, 0)
        self._asked: dict[Variant, float] = {}
        self._blocks: list[Block] | None = None
        self._ready: dict[Variant, bytes] = {}
        """Replaced whole, so that it can be read without the lock."""
        self._set(options)

    def _set(self, options: RenderOptions) -> None:
        self._options = options
        self._renderer = Renderer(options)
        self._process = ProcessMetrics(options.exclude, self._clock)

    def reconfigure(self, options: RenderOptions) -> None:
        """Show the latest snapshot, and all later ones, with other options."""
        with self._lock:
            self._set(options)
            self._render()

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the pages by those of this snapshot."""
        with self._lock:
            self._snapshot = snapshot
            for family, count in dropped_series(snapshot, self._options.processes).items():
                self._dropped[family] += count
            self._render()

    def ready(self, form: Format, zipped: bool) -> bytes | None:
        """Return the page if it is ready, at once; None if `page` has to render it first."""
        data = self._ready.get((form, zipped))
        if data is not None:
            self._asked[form, zipped] = self._clock()
        return data

    def page(self, form: Format, zipped: bool) -> bytes:
        """Return the page of the latest snapshot, and keep this variant ready from now on.

        Before the first snapshot it holds the exporter's own state only.
        """
        variant = (form, zipped)
        with self._lock:
            data = self._ready.get(variant)
            if data is None:
                data = _encoded(page(self._current(), form), zipped)
                self._ready = {**self._ready, variant: data}
            self._asked[variant] = self._clock()
            return data

    def filtered(self, names: Iterable[str], form: Format, zipped: bool) -> bytes:
        """Return the page with only the families of these names.

        A name is the exposed one or, of counters and infos, also the one without the suffix.
        """
        wanted = set(names)
        with self._lock:
            blocks = self._current()
        chosen = [block for block in blocks if not wanted.isdisjoint(block.names)]
        return _encoded(page(chosen, form), zipped)

    def _render(self) -> None:
        now = self._clock()
        asked = {
            variant: at for variant, at in list(self._asked.items()) if now - at < ACTIVE_SECONDS
        }
        variants = tuple(asked)
        self._asked = asked  # from here on other threads may add to it
        self._blocks = None
        plain = {form: page(self._current(), form) for form in {form for form, _ in variants}}
        self._ready = {variant: _encoded(plain[variant[0]], variant[1]) for variant in variants}

    def _current(self) -> list[Block]:
        if self._blocks is None:
            node = Node(self._snapshot, self._options.revision, dict(self._dropped), self._daemon())
            self._blocks = self._renderer.blocks(node) + self._process.blocks()
        return self._blocks
