# SPDX-License-Identifier: Apache-2.0
"""Runs ``specs``: all GPU models or one, for a person or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from exporter.cli import config
from exporter.cli.command import STOPPED, Invocation
from exporter.cli.terminal.screen import encodable, screen_of
from exporter.errors import ConfigError

FORMATS = ("table", "json")


def add_options(parser: config.Parser) -> None:
    """Add the options of the command."""
    parser.own.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="One GPU model: its key, its name by NVML, or a part of either.",
    )
    parser.own.add_argument(
        "--format", default="table", metavar="FORMAT", help="table or json. (default: table)"
    )


def run(invocation: Invocation) -> int:
    """Print one GPU model or all of them; return the exit code.

    Raises ConfigError where the spec file is bad, or no GPU model, or more than one, has the name.
    """
    settings, given = invocation.settings(), invocation.options
    if given.format not in FORMATS:
        raise ConfigError(f"--format: expected table or json, got {config.shown(given.format)}")

    from exporter.cli.specs.find import find
    from exporter.cli.specs.listing import listing
    from exporter.cli.specs.sheet import sheet
    from exporter.specs import load_specs
    from exporter.web.api.convert import specs_answer
    from exporter.web.api.models.json import json_text

    book = load_specs(settings.specs)
    chosen = None if given.name is None else find(book, given.name)
    models = tuple(book.models.values()) if chosen is None else (chosen,)
    screen = screen_of(sys.stdout, invocation.environ)
    lines: Iterable[str]
    if given.format == "json":
        lines = [json_text(specs_answer(models, book), indent=2)]
    elif chosen is None:
        lines = listing(models, screen)
    else:
        lines = sheet(chosen, book, screen)
    for line in lines:
        print(encodable(line, sys.stdout.encoding))
    return STOPPED
