# SPDX-License-Identifier: Apache-2.0
"""Runs ``specs``: all GPU models or one, for a person or as JSON."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from exporter.cli import config
from exporter.cli.command import STOPPED, Invocation
from exporter.cli.config.coerce import FORMAT, option
from exporter.cli.terminal.screen import print_lines, screen_of
from exporter.errors import ConfigError

if TYPE_CHECKING:
    from exporter.specs import GpuModel, SpecBook

MOST_CANDIDATES = 8


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
    """Print one GPU model or all of them; return the exit code."""
    settings, given = invocation.settings(), invocation.options
    form = option("--format", FORMAT, given.format)

    from exporter.cli.specs.sheet import listing, sheet
    from exporter.specs import load_specs
    from exporter.web.api.convert import specs_answer
    from exporter.web.api.models.json import json_text

    book = load_specs(settings.specs)
    chosen = None if given.name is None else find(book, given.name)
    models = tuple(book.models.values()) if chosen is None else (chosen,)
    screen = screen_of(sys.stdout, invocation.environ)
    if form == "json":
        print_lines([json_text(specs_answer(models, book), indent=2)])
    elif chosen is None:
        print_lines(listing(models, screen))
    else:
        print_lines(sheet(chosen, book, screen))
    return STOPPED


def find(book: SpecBook, name: str) -> GpuModel:
    """Return the GPU model of this key or NVML name, or the only one that it is a part of.

    Case, spaces and dashes do not matter in a part. Raises ConfigError, in one line that names
    those that may be meant, if no GPU model or more than one has it: some laptop GPUs have the name
    of a desktop one.
    """
    from exporter.specs.book import bare_name

    if name in book.models:
        return book.models[name]
    bare = bare_name(name)
    part = _letters(name)
    found = [
        model
        for model in book.models.values()
        if any(bare_name(each) == bare for each in model.names)
    ]
    if not found and part:
        found = [
            model
            for key, model in book.models.items()
            if any(part in _letters(text) for text in (key, model.product, *model.names))
        ]
    if len(found) == 1:
        return found[0]
    what = f"specs: {config.shown(name)}"
    if not found:
        nearest = config.did_you_mean(name.lower(), book.models)
        raise ConfigError(f"{what}: no GPU model has this key or name{nearest}")
    keys = [model.key for model in found[:MOST_CANDIDATES]]
    more = len(found) - len(keys)
    others = f" or {more} more" if more else ""
    raise ConfigError(f"{what}: expected one GPU model, may be {', '.join(keys)}{others}")


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", text.lower())
