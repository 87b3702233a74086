# SPDX-License-Identifier: Apache-2.0
"""The pages that scrapers get: rendered when a snapshot is published, ready when they ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from exporter.exposition.dcgm.field import Names
from exporter.exposition.formats import Format
from exporter.exposition.parts import Node
from exporter.exposition.process_metrics import ProcessMetrics
from exporter.exposition.processes import CAPPED, dropped_series
from exporter.exposition.ready import Variants, encoded
from exporter.exposition.render import Block, Renderer, RenderOptions, page
from exporter.model.daemon import Daemon
from exporter.model.snapshot import Snapshot

if TYPE_CHECKING:
    from exporter.exposition.dcgm.page import DcgmPage


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
        self._dropped = dict.fromkeys(CAPPED, 0)
        self._blocks: list[Block] | None = None
        self._own: Variants[Format] = Variants(
            self._lock, clock, lambda form: page(self._current(), form)
        )
        self.dcgm: Variants[Names] = Variants(self._lock, clock, self._dcgm_page)
        """The same readings as dcgm-exporter has them, by the generation of its names. Neither
        level nor exclusions apply to them."""
        self._dcgm_pages: dict[Names, DcgmPage] = {}
        self._set(options)

    def _set(self, options: RenderOptions) -> None:
        self._options = options
        self._renderer = Renderer(options)
        self._process = ProcessMetrics(options.exclude, self._clock)

    def reconfigure(self, options: RenderOptions) -> None:
        """Show the latest snapshot, and all later ones, with other options."""
        with self._lock:
            self._set(options)
            self._renew()

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the pages by those of this snapshot."""
        with self._lock:
            self._snapshot = snapshot
            for family, count in dropped_series(snapshot, self._options.processes).items():
                self._dropped[family] += count
            self._renew()

    def ready(self, form: Format, zipped: bool) -> bytes | None:
        """Return the page if it is ready, at once; None if `page` has to render it first."""
        return self._own.ready(form, zipped)

    def page(self, form: Format, zipped: bool) -> bytes:
        """Return the page of the latest snapshot, and keep this variant ready from now on.

        Before the first snapshot it holds the exporter's own state only.
        """
        return self._own.page(form, zipped)

    def filtered(self, names: Iterable[str], form: Format, zipped: bool) -> bytes:
        """Return the page with only the families of these names.

        A name is the exposed one or, of counters and infos, also the one without the suffix.
        """
        wanted = set(names)
        with self._lock:
            blocks = self._current()
        chosen = [block for block in blocks if not wanted.isdisjoint(block.names)]
        return encoded(page(chosen, form), zipped)

    def _renew(self) -> None:
        self._blocks = None
        self._own.renew()
        self.dcgm.renew()

    def _current(self) -> list[Block]:
        if self._blocks is None:
            node = Node(self._snapshot, self._options.revision, dict(self._dropped), self._daemon())
            self._blocks = self._renderer.blocks(node) + self._process.blocks()
        return self._blocks

    def _dcgm_page(self, names: Names) -> bytes:
        # Imported when it is first asked for: most nodes never are, and it takes 1 MB.
        from exporter.exposition.dcgm.page import DcgmPage

        made = self._dcgm_pages.get(names)
        if made is None:
            made = self._dcgm_pages[names] = DcgmPage(names, self._options.hostname)
        return made.render(self._snapshot)
