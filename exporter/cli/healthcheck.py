# SPDX-License-Identifier: Apache-2.0
"""``healthcheck``: whether the daemon is healthy, or ready; needs the standard library only."""

from __future__ import annotations

import sys

from exporter.cli import config
from exporter.cli.command import FAILED, STOPPED, Invocation
from exporter.cli.daemon_address import daemon_of
from exporter.cli.http_get import DaemonAddress, get
from exporter.errors import SourceError, one_line

TIMEOUT_SECONDS = 3.0
MAX_BYTES = 1000


def add_options(parser: config.Parser) -> None:
    """Add the options of the command."""
    parser.own.add_argument(
        "--ready",
        action="store_true",
        help="Ask whether a GPU is up, not only whether the daemon runs.",
    )


def run(invocation: Invocation) -> int:
    """Print one line about the daemon; return the exit code."""
    try:
        daemon = daemon_of(invocation.settings(), "healthcheck")
    except SourceError as error:
        is_well, line = False, str(error)
    else:
        is_well, line = check(daemon, ready=invocation.options.ready)
    print(line, file=sys.stdout if is_well else sys.stderr)
    return STOPPED if is_well else FAILED


def check(
    daemon: DaemonAddress, *, ready: bool, timeout_seconds: float = TIMEOUT_SECONDS
) -> tuple[bool, str]:
    """Ask the daemon; return its verdict and one line about it.

    Raises ConfigError if a file that the settings name cannot be used.
    """
    try:
        answer = get(
            daemon,
            f"/-/{'ready' if ready else 'healthy'}",
            seconds=timeout_seconds,
            most_bytes=MAX_BYTES,
        )
    except SourceError as error:
        return False, str(error)
    text = answer.body.decode("utf-8", "replace").strip()
    return answer.status == 200, one_line(f"{answer.url}: {answer.status} {text}".rstrip())
