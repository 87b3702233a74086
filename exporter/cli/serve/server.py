# SPDX-License-Identifier: Apache-2.0
"""The daemon: serves the parts over HTTP until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn

from exporter.cli.config import Address, Reloaded, Settings, bracketed
from exporter.cli.parts import Parts
from exporter.cli.signals import on_stop
from exporter.errors import ConfigError, ExporterError
from exporter.version import revision, version
from exporter.web.app import create_app

GRACEFUL_SHUTDOWN_SECONDS = 1
DATE_HEADER_SECONDS = 1.0
HEEDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that have a handler while it serves, unless SIGINT is ignored."""

log = logging.getLogger(__name__)


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

    on_stop(server.request_stop)
    signal.signal(signal.SIGHUP, lambda _signal, _frame: reloader.start())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED)

    log.info("roofline-exporter %s (revision %s) started", version(), revision())
    host = settings.web_listen_address.host
    shown = bracketed(host or "localhost")
    log.info("listening on http://%s:%d/ (metrics at /metrics)", shown, port)
    parts.fleet.start()
    for source in parts.training:
        source.start()
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
