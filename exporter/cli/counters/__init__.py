# SPDX-License-Identifier: Apache-2.0
"""Runs ``counters ACTION``: its actions, and which options go with each."""

from __future__ import annotations

from exporter.cli import config
from exporter.cli.command import Invocation
from exporter.errors import ConfigError

ACTIONS = {
    "check": "Say whether CUPTI can sample on this machine, and the next command; then which of "
    "its metrics gives which signal of each chip.",
    "pause": "Have the daemon of this machine hand its counters to a profiler, within 2 s.",
    "resume": "Have it take them again.",
}
OF_CHECK = ("chip", "cuda", "format")
"""The options that only this action takes."""


def add_options(parser: config.Parser) -> None:
    """Add the options of the command."""
    words = " ".join(f"{name}: {help}" for name, help in ACTIONS.items())
    parser.own.add_argument("action", nargs="?", metavar="ACTION", help=words)
    parser.own.add_argument(
        "--chip", metavar="CHIP", help="check: one chip, such as GA102. (default: all)"
    )
    parser.own.add_argument(
        "--cuda",
        metavar="VERSION",
        help="check: as with a driver of this version of CUDA, such as 12.9. (default: this "
        "machine's, or the newest CUPTI that is installed)",
    )
    parser.own.add_argument(
        "--format", metavar="FORMAT", help="check: table or json. (default: table)"
    )


def run(invocation: Invocation) -> int:
    """Run one action; return the exit code."""
    invocation.settings()  # of words that cannot be read there are no options
    given = invocation.options
    names = ", ".join(ACTIONS)
    if given.action is None:
        raise ConfigError(f"counters: expected one of {names}")
    if given.action not in ACTIONS:
        nearest = config.did_you_mean(given.action, ACTIONS)
        raise ConfigError(
            f"counters: expected one of {names}, got {config.shown(given.action)}{nearest}"
        )
    if given.action == "check":
        from exporter.cli.counters import check

        return check.run(invocation)
    for option in OF_CHECK:
        if getattr(given, option) is not None:
            raise ConfigError(f"--{option}: not an option of counters {given.action}")
    from exporter.cli.counters import lending

    return lending.run(invocation)
