# SPDX-License-Identifier: Apache-2.0
"""``check-config``: every problem of the configuration, one on a line."""

from __future__ import annotations

import sys

from exporter.cli import config
from exporter.cli.command import STOPPED, USAGE, Invocation


def add_options(parser: config.Parser) -> None:
    """Add nothing: every flag is a setting."""


def run(invocation: Invocation) -> int:
    """Print the problems, or that there is none; return the exit code."""
    problems = config.check_all(invocation.argv, invocation.environ, invocation.parser)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return USAGE
    print("configuration is valid")
    return STOPPED
