# SPDX-License-Identifier: Apache-2.0
"""``check-config``: every problem of the configuration, one on a line."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from exporter.cli import config
from exporter.cli.command import STOPPED, USAGE, Invocation
from exporter.errors import limited


def add_options(parser: config.Parser) -> None:
    """Add nothing: every flag is a setting."""


def run(invocation: Invocation) -> int:
    """Print the problems, or that there is none; return the exit code."""
    found = problems(invocation.argv, invocation.environ, invocation.parser)
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        return USAGE
    print("configuration is valid")
    return STOPPED


def problems(
    argv: Sequence[str], environ: Mapping[str, str], parser: config.Parser | None = None
) -> tuple[str, ...]:
    """Return every problem for which a daemon would not start, each on one line.

    Those are the problems of the settings, of the files that they name, and of what they ask of
    this machine. Beyond MOST_PROBLEMS they are not named; the last line then says so.
    """
    settings, found = config.resolve(argv, environ, parser)
    # This reads long files: no other command waits for it.
    from exporter.cli.validate import refusals

    return limited([*found, *refusals(settings)])
