# SPDX-License-Identifier: Apache-2.0
"""What a command is run with, and the exit codes that it may return."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.cli import config

STOPPED, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True, slots=True)
class Invocation:
    """What a command is run with."""

    argv: Sequence[str]
    """The words after the command's name."""
    environ: Mapping[str, str]
    parser: config.Parser
    options: argparse.Namespace
    """The command's own options."""

    def settings(self) -> config.Settings:
        """Return the settings that hold; raise ConfigError with the first problem."""
        return config.load(self.argv, self.environ, self.parser)

    def start(self) -> config.Settings:
        """Return the settings that hold, and start logging as they say."""
        from exporter import log  # not every command logs

        settings = self.settings()
        log.setup(settings.log_level, settings.log_format)
        return settings
