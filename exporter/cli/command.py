# SPDX-License-Identifier: Apache-2.0
"""The input of a command, its signal handlers, and its exit codes."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from exporter.cli import config

STOPPED, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True, slots=True)
class Invocation:
    """The arguments and streams of a command."""

    argv: Sequence[str]
    """The words after the command's name."""
    environ: Mapping[str, str]
    parser: config.Parser
    options: argparse.Namespace
    """The command's own options."""

    def settings(self) -> config.Settings:
        """Return the settings; raise ConfigError with the first problem."""
        return config.load(self.argv, self.environ, self.parser)

    def start(self) -> config.Settings:
        """Return the settings, and set up logging by them."""
        from exporter import log  # not every command logs

        settings = self.settings()
        log.setup(settings.log_level, settings.log_format)
        return settings


def on_stop(stop: Callable[[], object]) -> None:
    """Call `stop` on SIGTERM, and on SIGINT unless the command was started to ignore it.

    Scripts and ``nohup`` start what runs in the background so: a Ctrl-C is not meant for it.
    """
    on_signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        on_signal(signal.SIGINT, stop)


def on_signal(number: signal.Signals, call: Callable[[], object]) -> None:
    """Call it on a signal, which would end the process otherwise."""
    signal.signal(number, lambda _number, _frame: call())
