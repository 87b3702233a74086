# SPDX-License-Identifier: Apache-2.0
"""The objects that read, publish and show this node's GPUs, wired together but not started."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from exporter import log as logs
from exporter.cli.config import Settings
from exporter.cli.readers import (
    FIRST_READING_SECONDS,
    any_pending,
    as_played,
    choose_collectives,
    choose_host,
    choose_readers,
    choose_training,
    choose_workloads,
    looked_for,
    node_clock,
    node_pace,
)
from exporter.derive import IdleRules
from exporter.exposition.pages import Pages
from exporter.exposition.processes import ProcessRows
from exporter.exposition.render import RenderOptions
from exporter.model.snapshot import Snapshot
from exporter.publisher import Publisher, Rules
from exporter.sources.fleet.fleet import Fleet
from exporter.sources.interface import EVENT_SOURCES, Lendable
from exporter.specs import SpecBook, load_specs
from exporter.version import revision
from exporter.web.live.stream import Streams
from exporter.web.live.view import Views
from exporter.web.server.counts import Counts, uncounted
from exporter.web.store import Store


def _rules(settings: Settings) -> Rules:
    return Rules(
        interval_seconds=settings.poll_interval_seconds,
        forget_after_seconds=settings.gpu_forget_after_seconds,
        precision=settings.precision,
        idle=IdleRules(
            activity_ratio=settings.idle_threshold_ratio,
            link_bytes_per_second=settings.idle_link_rate_bytes_per_second,
            ignored_commands=frozenset(settings.hold_ignore),
        ),
        owners=settings.process_owner,
        serials=settings.identity_serial,
    )


def _render_options(settings: Settings, started_unix_seconds: float) -> RenderOptions:
    return RenderOptions(
        level=settings.metrics_level,
        exclude=settings.metrics_exclude,
        processes=ProcessRows(
            settings.process_memory, settings.process_utilization, settings.process_max
        ),
        revision=revision(),
        # As dcgm-exporter has it: in a container the host's own name is not known.
        hostname=os.environ.get("NODE_NAME") or socket.gethostname(),
        created=settings.metrics_created,
        started_unix_seconds=started_unix_seconds,
    )


class Parts:
    """The long-lived objects of one process, wired but not started."""

    def __init__(self, settings: Settings, counts: Counts | None = None) -> None:
        """Take the parts to wire, and the server's counters if there is a server."""
        settings = as_played(settings)
        clock = node_clock(settings)
        self.settings = settings
        self.specs: SpecBook = load_specs(settings.specs)
        self.store = Store()
        self._started_unix_seconds = clock.time()
        self.pages = Pages(
            _render_options(settings, self._started_unix_seconds),
            daemon=counts.read if counts else lambda: None,
        )
        self.streams = Streams(
            Views(
                self.store,
                lambda: self.settings.poll_interval_seconds,
                lambda: looked_for(self.settings),
            ),
            refused=counts.refuse_request if counts else uncounted,
        )
        self.fleet = choose_readers(settings, self.specs, clock)
        self.training = choose_training(settings, self.fleet, clock)
        self.workloads = choose_workloads(settings, self.fleet, clock)
        self.collectives = choose_collectives(settings, self.fleet, clock)
        self.host = choose_host(settings, self.fleet, clock)
        found = [each for each in (self.collectives, self.host) if each is not None]
        self._beside_the_fleet = (*self.training, *self.workloads, *found)
        self.publisher = Publisher(
            self.fleet,
            self.specs,
            _rules(settings),
            clock,
            # The pages of /metrics first: a fault in the live page must not delay them.
            (self.pages.publish, self.store.publish, self.streams.publish),
            training=self.training,
            workloads=self.workloads,
            collectives=self.collectives,
            host=self.host,
            pace=node_pace(settings),
        )

    @property
    def lendable(self) -> tuple[Lendable, ...]:
        """The counters that a profiler may ask for."""
        counters = self.fleet.node_counters.values() if isinstance(self.fleet, Fleet) else ()
        return tuple(each for each in counters if isinstance(each, Lendable))

    def reconfigure(self, settings: Settings) -> None:
        """Use what may change while running; the caller has validated it."""
        settings = as_played(settings)
        specs = load_specs(settings.specs)
        logs.setup(settings.log_level, settings.log_format)
        self.settings, self.specs = settings, specs
        self.publisher.reconfigure(specs, _rules(settings))
        self.pages.reconfigure(_render_options(settings, self._started_unix_seconds))

    def start(self) -> None:
        """Start all sources."""
        self.fleet.start()
        for source in self._beside_the_fleet:
            source.start()

    def stop(self) -> None:
        """Stop every thread that can be stopped, and NVML if no call is under way."""
        self.publisher.stop()
        for source in self._beside_the_fleet:
            source.stop()
        self.fleet.stop()


@contextmanager
def looking(settings: Settings) -> Iterator[tuple[Parts, str | None]]:
    """Read the GPUs in this process within a context; yield why none can be read, or None.

    Sources that report only what happens from their start on are left out.
    """
    parts = Parts(replace(settings, sources=settings.sources - EVENT_SOURCES))
    parts.start()
    try:
        yield parts, settle(parts)
    finally:
        parts.stop()


def settle(parts: Parts) -> str | None:
    """Tick until every GPU was read or failed; return why none can be read, in one line, or None.

    What runs slower than that is not waited for.
    """

    def is_settled(snapshot: Snapshot) -> bool:
        if snapshot.problem is None:
            return not any_pending(parts.fleet)
        return parts.fleet.problem is not None  # waiting is hopeless

    return _tick_until(parts, is_settled).problem


def read_again(parts: Parts) -> Snapshot:
    """Return the snapshot one poll interval later, with a newer reading of every GPU that answers.

    Call it after `settle`. A GPU that reads slowly is waited for as long as for a first reading.
    """
    before = parts.store.latest()
    read_at = (
        {gpu.device.uuid: gpu.last_read_timestamp_seconds for gpu in before.gpus} if before else {}
    )

    def is_read(snapshot: Snapshot) -> bool:
        return all(
            gpu.last_read_timestamp_seconds != read_at.get(gpu.device.uuid)
            for gpu in snapshot.gpus
            if gpu.up
        )

    time.sleep(parts.settings.poll_interval_seconds)
    return _tick_until(parts, is_read)


def _tick_until(parts: Parts, is_done: Callable[[Snapshot], bool]) -> Snapshot:
    """Tick until it is done, but no longer than a first reading may take; return the snapshot."""
    deadline = time.monotonic() + FIRST_READING_SECONDS
    while not is_done(snapshot := parts.publisher.tick()) and time.monotonic() <= deadline:
        time.sleep(0.05)
    return snapshot
