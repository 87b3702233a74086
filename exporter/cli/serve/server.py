# SPDX-License-Identifier: Apache-2.0
"""The daemon: serves the parts over HTTP until a signal ends it."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from collections.abc import Callable

from starlette.types import ASGIApp

from exporter import __version__
from exporter import log as logs
from exporter.cli.command import on_signal, on_stop
from exporter.cli.config import Reloaded, Settings, bracketed
from exporter.cli.serve.on_signal import Lender, Reloader
from exporter.cli.wiring import Parts
from exporter.version import revision
from exporter.web.app import create_app
from exporter.web.hosts import Hosts, KnownHosts, own_domains
from exporter.web.server.counts import Counts
from exporter.web.server.limits import Limits
from exporter.web.server.server import Server, listen

HANDLED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Handled while it serves; SIGINT only if it was not ignored at the start."""

SWITCH_SECONDS = 0.0005
"""After which a thread that works gives way: with Python's 5 ms, a scrape that meets a tick waits
that long at each of its turns."""

log = logging.getLogger(__name__)


def _limits(settings: Settings) -> Limits:
    wanted = settings.web_max_connections
    limits = Limits(wanted, settings.web_max_connections_per_address).affordable()
    if limits.connections < wanted:
        most = limits.connections
        log.info("%d connections at most: the limit of open files allows no more", most)
    return limits


def serve(settings: Settings, reload: Callable[[], Reloaded]) -> int:
    """Run until SIGTERM or SIGINT; return the exit code.

    Signals that the caller has blocked so far are unblocked once they are handled. Raises
    ConfigError if a file is bad, ExporterError if the address cannot be listened on.
    """
    access = None
    if settings.web_config_file is not None:
        from exporter.web.access.reload import WebConfigWatcher  # loaded only where there is a file

        access = WebConfigWatcher(settings.web_config_file)
    counts = Counts(logs.dropped, lambda: None if access is None else access.ok)
    parts = Parts(settings, counts)
    listener = listen(settings.web_listen_address.host, settings.web_listen_address.port)
    port = listener.getsockname()[1]
    app: ASGIApp = create_app(
        store=parts.store,
        pages=parts.pages,
        specs=lambda: parts.specs,
        poll_interval_seconds=lambda: parts.settings.poll_interval_seconds,
        parallel_scrapes=settings.web_max_requests,
        streams=parts.streams,
        refused=counts.refuse_request,
    )
    if access is not None:
        from exporter.web.access.auth import AuthMiddleware

        app = AuthMiddleware(app, access, counts.refuse_request)
    server = Server(
        KnownHosts(app, Hosts(settings.web_allowed_hosts, own_domains()), counts.refuse_request),
        listener,
        limits=_limits(settings),
        counts=counts,
        config=access,
    )
    reloader = Reloader(reload, parts.reconfigure, counts.note_config)
    reloader.start()

    lender = Lender(parts.lendable)
    lender.start()

    on_stop(server.request_stop)
    on_signal(signal.SIGUSR1, lender.pause)
    on_signal(signal.SIGUSR2, lender.resume)
    on_signal(signal.SIGHUP, reloader.request)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)

    log.info("roofline-exporter %s (revision %s) started", __version__, revision())
    host = settings.web_listen_address.host
    shown = bracketed(host or "localhost")
    scheme = "https" if access is not None and access.is_encrypted else "http"
    log.info("listening on %s://%s:%d/ (metrics at /metrics)", scheme, shown, port)
    parts.start()
    parts.publisher.start()
    # What is loaded now stays for the life of the process: no need to scan it again and again.
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        server.run()
    finally:
        parts.stop()
    log.info("stopped")
    return 0
