# SPDX-License-Identifier: Apache-2.0
"""Runs ``counters ACTION``: the table of its actions, and which options go with each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from exporter.cli import config
from exporter.cli.command import Invocation
from exporter.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Action:
    """One word that may follow ``counters``."""

    help: str
    module: str
    """What runs it."""
    options: frozenset[str] = frozenset()
    """Those that it takes, of the command's."""


class Module(Protocol):
    """The module of an action."""

    def run(self, invocation: Invocation) -> int:
        """Run the action; return the exit code."""


ACTIONS: Mapping[str, Action] = {
    "check": Action(
        "Show which of CUPTI's metrics gives which signal, and what is missing; needs neither GPU "
        "nor driver.",
        "exporter.cli.counters.check",
        frozenset({"chip", "cuda", "format"}),
    ),
    "pause": Action(
        "Have the daemon of this machine hand its counters to a profiler, within 2 s.",
        "exporter.cli.counters.lending",
    ),
    "resume": Action("Have it take them again.", "exporter.cli.counters.lending"),
}


def add_options(parser: config.Parser) -> None:
    """Add the options of the command."""
    words = " ".join(f"{name}: {action.help}" for name, action in ACTIONS.items())
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
    """Run one action; return the exit code.

    Raises ConfigError where there is no such action, or it does not take an option that is given.
    """
    invocation.settings()  # of words that cannot be read there are no options
    given = invocation.options
    names = ", ".join(ACTIONS)
    if given.action is None:
        raise ConfigError(f"counters: expected one of {names}")
    action = ACTIONS.get(given.action)
    if action is None:
        nearest = config.did_you_mean(given.action, ACTIONS)
        raise ConfigError(
            f"counters: expected one of {names}, got {config.shown(given.action)}{nearest}"
        )
    for option in sorted(frozenset().union(*(each.options for each in ACTIONS.values()))):
        if getattr(given, option) is not None and option not in action.options:
            raise ConfigError(f"--{option}: not an option of counters {given.action}")
    return cast(Module, import_module(action.module)).run(invocation)
