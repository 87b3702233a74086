# SPDX-License-Identifier: Apache-2.0
"""Runs ``serve``: reads the settings while signals wait, then loads and starts the daemon."""

from __future__ import annotations

import ctypes
import logging
import signal
from contextlib import suppress

from exporter.cli import config
from exporter.cli.command import Invocation

M_ARENA_MAX = -8
"""Of glibc's malloc.h."""

log = logging.getLogger(__name__)


def run(invocation: Invocation) -> int:
    """Serve until stopped; return the exit code."""
    _use_one_arena()
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


def _use_one_arena() -> None:
    """Have all threads to come allocate from one arena, mallopt(3).

    glibc gives threads arenas of their own, each with free memory that no other can use. Under the
    interpreter's lock they hardly ever allocate at the same time.
    """
    with suppress(AttributeError):  # musl has no arenas
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
