# SPDX-License-Identifier: Apache-2.0
"""The command ``status``: ask the daemon, else read the GPUs; print once, or watch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace

from exporter.cli import config
from exporter.cli.command import Invocation
from exporter.cli.config.coerce import Kind, choice, option
from exporter.cli.snapshot_reader import Reader, Reply, snapshot_reader
from exporter.cli.status.render import ORDERS, View, rendered, view
from exporter.cli.status.watch import watch
from exporter.cli.terminal.screen import encodable, print_lines, safe, screen_of
from exporter.errors import SourceError
from exporter.model.snapshot import Snapshot

WATCH_SECONDS = "1s"
_DURATION: Kind[float] = config.BY_NAME["poll.interval"].kind
INTERVAL = Kind(
    lambda text: _DURATION.parse(text if text[-1:].isalpha() else f"{text}s"),
    "SECONDS",
    f"{_DURATION.expected}, or seconds",
)

SORT = choice(*ORDERS)


def add_options(parser: config.Parser) -> None:
    """Add the options of the command."""
    parser.own.add_argument(
        "--watch",
        nargs="?",
        const=WATCH_SECONDS,
        metavar="SECONDS",
        help=f"Refresh the table in place, at this interval. (default: {WATCH_SECONDS})",
    )
    parser.own.add_argument(
        "--sort",
        default="trouble",
        metavar="ORDER",
        help=f"Order of the GPUs: {', '.join(ORDERS)}. (default: trouble)",
    )
    parser.own.add_argument(
        "--json", action="store_true", help="Print the answer of the API at /api/v1/gpus."
    )


def run(invocation: Invocation) -> int:
    """Show what each GPU does; return the exit code."""
    # Logging is set up only if this process reads the GPUs.
    settings, given = invocation.settings(), invocation.options
    interval = None if given.watch is None else option("--watch", INTERVAL, given.watch)
    sort = option("--sort", SORT, given.sort)
    with ExitStack() as stack:
        if interval is not None:
            settings = _polling_every(settings, interval)
        reader, _ = snapshot_reader(settings, stack, "status")
        if interval is None:
            reply = reader()
            if given.json:
                print_lines([reply.text])
            else:
                _print_table(reply, invocation.environ, sort)
            return 0
        if given.json:
            return _print_for_ever(reader, interval)
        return watch(_refreshed(reader, sort), interval, sys.stdout, invocation.environ)


def _polling_every(settings: config.Settings, interval: float) -> config.Settings:
    """Return the settings for a process that reads the GPUs itself at this interval."""
    slow = max(interval, settings.poll_slow_interval_seconds)
    return replace(settings, poll_interval_seconds=interval, poll_slow_interval_seconds=slow)


def _print_table(reply: Reply, environ: Mapping[str, str], sort: str) -> None:
    shown = view(reply.snapshot, reply.notices, since_start=reply.since_start, sort=sort)
    if not shown.gpus:
        raise SourceError(": ".join(("no GPU", *view(reply.snapshot).notices)))
    print_lines(rendered(shown, screen_of(sys.stdout, environ)))


def _refreshed(reader: Reader, sort: str) -> Callable[[], View]:
    """Return the reader of views; while the daemon is silent, of the last view and the reason."""
    last = Reply("", Snapshot(0.0))

    def read() -> View:
        nonlocal last
        notices: tuple[str, ...] = ()
        try:
            last = reader()
        except SourceError as error:
            notices = (str(error),)
        notices = (*notices, *last.notices)
        return view(last.snapshot, notices, since_start=last.since_start, sort=sort)

    return read


def _print_for_ever(reader: Reader, interval_seconds: float) -> int:
    """Print one line of JSON every interval until interrupted; none while reading fails."""
    with suppress(KeyboardInterrupt):
        while True:
            try:
                print_lines([reader().text], flush=True)
            except SourceError as error:
                print(encodable(safe(str(error)), sys.stderr.encoding), file=sys.stderr)
            time.sleep(interval_seconds)
    return 0
