# SPDX-License-Identifier: Apache-2.0
"""Wires the parts into the daemon, and into the one-shot page."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import uvicorn

from exporter import log as logs
from exporter.cli.config import Address, Reloaded, Settings
from exporter.cli.nodes import (
    NodeReaders,
    as_played,
    choose_readers,
    choose_training,
    looked_for,
    node_clock,
    node_pace,
)
from exporter.derive import IdleRules
from exporter.errors import ConfigError, ExporterError
from exporter.exposition.families import ProcessMemory
from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.publisher.gpu import Rules
from exporter.publisher.tick import Publisher
from exporter.sources.fleet.fleet import Fleet
from exporter.specs import SpecBook, load_specs
from exporter.version import revision, version
from exporter.web.app import create_app
from exporter.web.live.stream import Streams
from exporter.web.live.views import Views
from exporter.web.store import Store

GRACEFUL_SHUTDOWN_SECONDS = 1
DATE_HEADER_SECONDS = 1.0
HEEDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that `serve` has handlers for."""
FIRST_READING_SECONDS = 10.0

log = logging.getLogger(__name__)


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
    )


def _render_options(settings: Settings) -> RenderOptions:
    return RenderOptions(
        level=settings.metrics_level,
        exclude=settings.metrics_exclude,
        process_memory=ProcessMemory(settings.process_memory, settings.process_max),
        revision=revision(),
    )


class Parts:
    """The long-lived objects of one process, wired but not started."""

    def __init__(self, settings: Settings) -> None:
        settings = as_played(settings)
        clock = node_clock(settings)
        self.settings = settings
        self.specs: SpecBook = load_specs(settings.specs)
        self.store = Store()
        self.pages = Pages(_render_options(settings))
        self.streams = Streams(
            Views(
                self.store,
                lambda: self.settings.poll_interval_seconds,
                lambda: looked_for(self.settings),
            )
        )
        self.fleet: NodeReaders = choose_readers(settings, self.specs, clock)
        self.training = choose_training(settings, self.fleet, clock)
        self.publisher = Publisher(
            self.fleet,
            self.specs,
            _rules(settings),
            clock,
            # What is scraped first: a fault in what is looked at must not delay it.
            (self.pages.publish, self.store.publish, self.streams.publish),
            training=self.training,
            pace=node_pace(settings),
        )

    def reconfigure(self, settings: Settings) -> None:
        """Use what may change while running; the caller has validated it."""
        settings = as_played(settings)
        specs = load_specs(settings.specs)
        logs.setup(settings.log_level, settings.log_format)
        self.settings, self.specs = settings, specs
        self.publisher.reconfigure(specs, _rules(settings))
        self.pages.reconfigure(_render_options(settings))

    def stop(self) -> None:
        """Stop every thread that can be stopped, and NVML if no call is under way."""
        self.publisher.stop()
        if self.training is not None:
            self.training.stop()
        self.fleet.stop()


class _Server(uvicorn.Server):
    """uvicorn, but ended by `request_stop` instead of its own signal handling and polling.

    Its signal handling would end the process by the signal itself, and its loop wakes ten times a
    second to look whether it should end, which costs a fifth of an idle daemon's time.
    """

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_streams = end_streams
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def request_stop(self) -> None:
        """End serving; may be called from a signal handler, also before serving began."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, which would never end by themselves, and then the rest."""
        self._end_streams()
        await super().shutdown(sockets)

    async def main_loop(self) -> None:
        """Wait for the end; refresh the Date header once a second."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stop.wait(), DATE_HEADER_SECONDS)


def _listen(address: Address) -> socket.socket:
    """Return a listening socket; without a host on every address, IPv6 too where there is any."""
    host, port = address.host, address.port
    try:
        if host:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, port), family=family, backlog=128)
        if socket.has_dualstack_ipv6():
            with contextlib.suppress(OSError):  # IPv6 may be switched off
                return socket.create_server(
                    ("::", port), family=socket.AF_INET6, backlog=128, dualstack_ipv6=True
                )
        return socket.create_server(("", port), backlog=128)
    except OSError as error:
        raise ExporterError(
            f"cannot listen on {host or '*'}:{port}: {error.strerror or error}"
        ) from error


class _Reloader:
    """Re-reads configuration and specs on SIGHUP, outside the event loop, one at a time."""

    def __init__(self, parts: Parts, reload: Callable[[], Reloaded]) -> None:
        self._parts = parts
        self._reload = reload
        self._lock = threading.Lock()

    def start(self) -> None:
        """Re-read in a thread of its own."""
        threading.Thread(target=self._run, name="reload", daemon=True).start()

    def _run(self) -> None:
        with self._lock:
            try:
                reloaded = self._reload()
                self._parts.reconfigure(reloaded.settings)
            except ConfigError as error:
                log.warning("configuration not reloaded, the old one stays: %s", error)
                return
            except Exception:
                log.exception("configuration not reloaded, the old one stays")
                return
            log.info("configuration reloaded")
            if reloaded.needs_restart:
                log.warning("a restart is needed to change %s", ", ".join(reloaded.needs_restart))


def serve(settings: Settings, reload: Callable[[], Reloaded]) -> int:
    """Run until SIGTERM or SIGINT; return the exit code.

    Signals that the caller has blocked so far are unblocked once they are handled.

    Raises:
        ConfigError: the spec file is bad.
        ExporterError: the address cannot be listened on.
    """
    parts = Parts(settings)
    listener = _listen(settings.web_listen_address)
    # Accepted connections inherit it. asyncio would set it only on sockets made with an explicit
    # protocol; without it the body of an answer waits 40 ms for the client's delayed ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    port = listener.getsockname()[1]
    app = create_app(
        store=parts.store,
        pages=parts.pages,
        specs=lambda: parts.specs,
        poll_interval_seconds=lambda: parts.settings.poll_interval_seconds,
        parallel_scrapes=settings.web_max_requests,
        streams=parts.streams,
    )
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,  # log.setup() does it
            server_header=False,
            lifespan="off",
            http="httptools",
            timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_SECONDS,
        ),
        parts.streams.end,
    )
    reloader = _Reloader(parts, reload)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _signal, _frame: server.request_stop())
    signal.signal(signal.SIGHUP, lambda _signal, _frame: reloader.start())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED)

    log.info("roofline-exporter %s (revision %s) started", version(), revision())
    host = settings.web_listen_address.host
    shown = f"[{host}]" if ":" in host else host or "localhost"
    log.info("listening on http://%s:%d/ (metrics at /metrics)", shown, port)
    parts.fleet.start()
    if parts.training is not None:
        parts.training.start()
    parts.publisher.start()
    # What is loaded now stays for the life of the process: no need to scan it again and again.
    gc.collect()
    gc.freeze()
    try:
        server.run(sockets=[listener])
    finally:
        parts.stop()
    log.info("stopped")
    return 0


@contextlib.contextmanager
def _quiet(module: str) -> Iterator[None]:
    """Let only errors of a module into the log for a while."""
    logger = logging.getLogger(module)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def once(settings: Settings) -> int:
    """Read every GPU twice, one interval apart, and print one page; return the exit code."""
    # Why there is no driver is told below, in one line, and nothing is tried again.
    with _quiet(Fleet.__module__):
        # Kernel log and training jobs say what happens from now on.
        parts = Parts(replace(settings, source_kmsg=False, source_training=False))
        parts.fleet.start()
        try:
            problem = settle(parts)
            if problem is not None:
                print(f"roofline-exporter: {problem}", file=sys.stderr)
                return 1
            time.sleep(parts.settings.poll_interval_seconds)
            parts.publisher.tick()
            sys.stdout.buffer.write(parts.pages.page("text-0.0.4", False))
            sys.stdout.buffer.flush()
        finally:
            parts.stop()
    return 0


def settle(parts: Parts) -> str | None:
    """Tick until every GPU was read or failed; return why none can be read, in one line, or None.

    What runs slower than that is not waited for.
    """
    deadline = time.monotonic() + FIRST_READING_SECONDS
    snapshot = parts.publisher.tick()
    while snapshot.problem is not None or _any_awaited(parts.fleet):
        is_late = time.monotonic() > deadline
        if snapshot.problem is not None and (is_late or parts.fleet.problem is not None):
            return snapshot.problem
        if is_late:
            break
        time.sleep(0.05)
        snapshot = parts.publisher.tick()
    return None


def _any_awaited(fleet: NodeReaders) -> bool:
    """Return whether a GPU has neither been read nor failed yet: waking one up takes seconds."""
    return any(report.reading is None and report.problem is None for report in fleet.reports())
