# SPDX-License-Identifier: Apache-2.0
"""``once``: one page of metrics on standard output."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Iterator

from exporter import log
from exporter.cli import config
from exporter.cli.command import FAILED, STOPPED, Invocation


def add_options(parser: config.Parser) -> None:
    """Add nothing: every flag is a setting."""


def run(invocation: Invocation) -> int:
    """Print a page; return the exit code."""
    return once(invocation.start())


def once(settings: config.Settings) -> int:
    """Read every GPU twice, one interval apart, and print one page; return the exit code."""
    # A mistake in the settings is reported before the web framework is loaded.
    from exporter.cli.wiring import looking
    from exporter.sources.fleet.problems import Problems

    # Why there is no driver is printed below, in one line, and nothing is tried again.
    with quiet(Problems.__module__), looking(settings) as (parts, problem):
        if problem is not None:
            log.flush()
            print(f"roofline-exporter: {problem}", file=sys.stderr)
            return FAILED
        time.sleep(parts.settings.poll_interval_seconds)
        parts.publisher.tick()
        sys.stdout.buffer.write(parts.pages.page("text-0.0.4", False))
        sys.stdout.buffer.flush()
    return STOPPED


@contextlib.contextmanager
def quiet(module: str) -> Iterator[None]:
    """Let only errors of a module into the log for a while."""
    logger = logging.getLogger(module)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
