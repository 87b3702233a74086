# SPDX-License-Identifier: Apache-2.0
"""The pages for scrapers, rendered when a snapshot is published and cached for requests."""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from prometheus_client import ProcessCollector

from exporter.exposition.dcgm import Names
from exporter.exposition.formats import Format, headings
from exporter.exposition.parts import Node
from exporter.exposition.processes import CAPPED, dropped_series
from exporter.exposition.render import Block, Renderer, RenderOptions, page
from exporter.model.daemon import Daemon
from exporter.model.snapshot import Snapshot

if TYPE_CHECKING:
    from exporter.exposition.dcgm.page import DcgmPage


K = TypeVar("K")

LATELY = 3
"""A page that is requested at least once in so many snapshots is rendered in advance."""
LONGEST_GAP = 300
"""After so many snapshots a request is forgotten: no scrape interval is longer."""


def encoded(data: bytes, zipped: bool) -> bytes:
    """Return a page as it is sent, gzipped or not."""
    # Level 1 takes a tenth of the time of level 9 for a fifth more bytes. No timestamp, so that
    # equal pages are equal bytes.
    return gzip.compress(data, 1, mtime=0) if zipped else data


class _Asked(NamedTuple):
    """The last request of a page, by the number of the snapshot."""

    at: int
    gap: int = 0
    """By how many snapshots it came after the request before; 0 of a first request."""
    regular: bool = False
    """Whether that one came after as many."""

    def again(self, snapshot: int) -> _Asked:
        """Return the request after this one."""
        gap = snapshot - self.at
        return _Asked(snapshot, gap, gap == self.gap)

    def is_due(self, snapshot: int) -> bool:
        """Return whether the next request is likely to be for this snapshot."""
        since = snapshot - self.at
        return since <= LATELY if 0 < self.gap <= LATELY else self.regular and since == self.gap


class Variants(Generic[K]):
    """A cache of pages, plain and gzipped, in advance for those who ask again and again.

    The publishing thread holds the lock and calls `renew`; any thread may request pages.
    """

    def __init__(self, lock: threading.Lock, make: Callable[[K], bytes]) -> None:
        self._lock = lock
        self._make = make
        self._snapshots = 0
        self._requested: dict[tuple[K, bool], _Asked] = {}
        self._ready: dict[tuple[K, bool], bytes] = {}
        """Never modified but replaced, so that it can be read without the lock."""

    def ready(self, key: K, zipped: bool) -> bytes | None:
        """Return the cached page; None if `page` has to render it."""
        data = self._ready.get((key, zipped))
        if data is not None:
            self._note((key, zipped))
        return data

    def page(self, key: K, zipped: bool) -> bytes:
        """Return the page of the latest snapshot, from the cache if it is there."""
        variant = (key, zipped)
        with self._lock:
            data = self._ready.get(variant)
            if data is None:
                data = encoded(self._make(key), zipped)
                self._ready = {**self._ready, variant: data}
            self._note(variant)
            return data

    def _note(self, variant: tuple[K, bool]) -> None:
        before, now = self._requested.get(variant), self._snapshots
        if before is None:
            self._requested[variant] = _Asked(now)
        elif before.at != now:
            self._requested[variant] = before.again(now)

    def renew(self) -> None:
        """Render again what is likely to be requested, evict the rest; call with the lock held."""
        now = self._snapshots = self._snapshots + 1
        known = list(self._requested.items())
        recent = {variant: asked for variant, asked in known if now - asked.at <= LONGEST_GAP}
        variants = tuple(variant for variant, asked in recent.items() if asked.is_due(now))
        self._requested = recent  # from here on other threads may add to it
        plain = {key: self._make(key) for key in {key for key, _ in variants}}
        self._ready = {variant: encoded(plain[variant[0]], variant[1]) for variant in variants}


def process_blocks(collector: ProcessCollector, exclude: re.Pattern[str] | None) -> list[Block]:
    """Return the ``process_*`` families of client_python for this process."""
    blocks = []
    for metric in collector.collect():
        name = metric.name + ("_total" if metric.type == "counter" else "")
        if exclude is not None and exclude.fullmatch(name):
            continue
        text = headings(name, metric.name, metric.type, "", metric.documentation)
        lines = [f"{sample.name} {sample.value!r}\n" for sample in metric.samples]
        blocks.append(Block((name, metric.name), text, lines))
    return blocks


class Pages:
    """Caches the pages for the next scrapes; one thread publishes, any thread may request pages."""

    def __init__(
        self,
        options: RenderOptions,
        daemon: Callable[[], Daemon | None] = lambda: None,
    ) -> None:
        self._daemon = daemon
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._dropped = dict.fromkeys(CAPPED, 0)
        self._blocks: list[Block] | None = None
        self._process = ProcessCollector(registry=None)
        self._own: Variants[Format] = Variants(self._lock, lambda form: page(self._current(), form))
        self.dcgm: Variants[Names] = Variants(self._lock, self._dcgm_page)
        """The pages under dcgm-exporter's names, by generation; --metrics.level and
        --metrics.exclude do not apply."""
        self._dcgm_pages: dict[Names, DcgmPage] = {}
        self._set(options)

    def _set(self, options: RenderOptions) -> None:
        self._options = options
        self._renderer = Renderer(options)

    def reconfigure(self, options: RenderOptions) -> None:
        """Use other options from now on."""
        with self._lock:
            self._set(options)
            self._renew()

    def publish(self, snapshot: Snapshot) -> None:
        """Render the pages of this snapshot."""
        with self._lock:
            self._snapshot = snapshot
            for family, count in dropped_series(snapshot, self._options.processes).items():
                self._dropped[family] += count
            self._renew()

    def ready(self, form: Format, zipped: bool) -> bytes | None:
        """Return the cached page; None if `page` has to render it."""
        return self._own.ready(form, zipped)

    def page(self, form: Format, zipped: bool) -> bytes:
        """Return the page of the latest snapshot; before the first, of the exporter alone."""
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
            own = process_blocks(self._process, self._options.exclude)
            self._blocks = self._renderer.blocks(node) + own
        return self._blocks

    def _dcgm_page(self, names: Names) -> bytes:
        # Imported at the first request: it takes 1 MB that most nodes never need.
        from exporter.exposition.dcgm.page import DcgmPage

        made = self._dcgm_pages.get(names)
        if made is None:
            made = self._dcgm_pages[names] = DcgmPage(names, self._options.hostname)
        return made.render(self._snapshot)
