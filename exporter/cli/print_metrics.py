# SPDX-License-Identifier: Apache-2.0
"""``once``: one page of metrics on standard output."""

from __future__ import annotations

import logging
import sys

from exporter.cli.command import STOPPED, Invocation
from exporter.errors import SourceError


def run(invocation: Invocation) -> int:
    """Read every GPU twice, one interval apart, and print one page; return the exit code."""
    settings = invocation.start()
    # A mistake in the settings is reported before the web framework is loaded.
    from exporter.cli.wiring import looking, read_again
    from exporter.sources.fleet.problems import Problems

    # Why there is no driver is printed below, in one line, and nothing is tried again.
    problems = logging.getLogger(Problems.__module__)
    problems.setLevel(logging.ERROR)
    try:
        with looking(settings) as (parts, problem):
            if problem is not None:
                raise SourceError(problem)
            read_again(parts)
            sys.stdout.buffer.write(parts.pages.page("text-0.0.4", False))
            sys.stdout.buffer.flush()
        return STOPPED
    finally:
        problems.setLevel(logging.NOTSET)
