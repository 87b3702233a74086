# SPDX-License-Identifier: Apache-2.0
"""``healthcheck``: whether the daemon is healthy, or ready; needs the standard library only."""

from __future__ import annotations

import sys

from exporter.cli import config
from exporter.cli.ask import add_url, base_url, get
from exporter.cli.command import FAILED, STOPPED, Invocation
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
    add_url(parser)


def run(invocation: Invocation) -> int:
    """Print one line about the daemon; return the exit code."""
    settings, given = invocation.settings(), invocation.options
    url = given.url or base_url(settings.web_listen_address, "healthcheck")
    is_well, line = check(url, ready=given.ready)
    print(line, file=sys.stdout if is_well else sys.stderr)
    return STOPPED if is_well else FAILED


def check(url: str, *, ready: bool, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[bool, str]:
    """Ask the daemon whose pages start at `url`; return its verdict and one line about it.

    Raises ConfigError if `url` is not a URL.
    """
    try:
        answer = get(
            url,
            f"/-/{'ready' if ready else 'healthy'}",
            connect_seconds=timeout_seconds,
            answer_seconds=timeout_seconds,
            most_bytes=MAX_BYTES,
        )
    except SourceError as error:
        return False, str(error)
    text = answer.body.decode("utf-8", "replace").strip()
    return answer.status == 200, one_line(f"{answer.url}: {answer.status} {text}".rstrip())
