# SPDX-License-Identifier: Apache-2.0
"""Runs ``serve``: reads the settings while signals wait, then loads and starts the daemon."""

from __future__ import annotations

import logging
import signal

from exporter.cli import config
from exporter.cli.command import Invocation

log = logging.getLogger(__name__)


def run(invocation: Invocation) -> int:
    """Serve until stopped; return the exit code."""
    # Signals wait for their handlers: a reload or stop right after the start counts.
    waiting = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, waiting)
    try:
        settings = invocation.start()
        # A mistake in the settings is reported before the web framework is loaded.
        from exporter.cli.serve.server import serve

        log.debug("settings", extra={"fields": settings.describe()})
        return serve(settings, lambda: config.reload(settings, invocation.argv, invocation.environ))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
