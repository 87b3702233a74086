# SPDX-License-Identifier: Apache-2.0
"""Runs ``compare``: two jobs side by side, for a person or as JSON; an exit code for scripts."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from exporter.cli import config
from exporter.cli.command import FAILED, STOPPED, Invocation
from exporter.cli.config.coerce import choice, option
from exporter.cli.terminal.screen import print_lines, safe, screen_of
from exporter.cli.terminal.table import Cell, Column, laid_out
from exporter.errors import ConfigError, one_line

NOT_KNOWN = 3
"""The exit code where a --fail-if needs a number that is not known."""


def _cell(at: int, row: tuple[str, ...]) -> Cell:
    return Cell(row[at])


COLUMNS = [
    Column(title, partial(_cell, at), at, most=40, right=0 < at < 4)
    for at, title in enumerate(("", "A", "B", "CHANGE", ""))
]


def add_options(parser: config.Parser) -> None:
    """Add the options of the command."""
    add = parser.own.add_argument
    for name, text in (("a", "What run --summary wrote before."), ("b", "And after a change.")):
        add(name, metavar=name.upper(), help=text).required = False
    text = (
        "Exit with 1 if it holds: for a number of B, such as 'wait>20%%', or with a sign for "
        "its change, such as 'steps_per_second<-10%%'. Exit with 3 if that is not known."
    )
    add("--fail-if", action="append", default=[], metavar="EXPR", help=text)
    add("--format", default="text", metavar="FORMAT", help="text or json. (default: text)")


def run(invocation: Invocation) -> int:
    """Print the comparison; return the exit code."""
    invocation.settings()
    given = invocation.options
    form = option("--format", choice("text", "json"), given.format)
    if given.b is None:
        raise ConfigError("compare: expected two files of run --summary, such as a.json b.json")

    from exporter.cli.compare.comparison import condition, figures, not_comparable, rows
    from exporter.cli.compare.job_summary import read_summary

    conditions = [condition(text) for text in given.fail_if]
    a, b = (read_summary(Path(path)) for path in (given.a, given.b))
    warnings = list(not_comparable(a, b))
    outcomes = {each.text: each.holds(a, b) for each in conditions}
    found = {holds for holds, _ in outcomes.values()}
    if form == "json":
        held = {text: holds for text, (holds, _) in outcomes.items()}
        answer = {"a": figures(a), "b": figures(b), "not_comparable": warnings, "fail_if": held}
        lines = [json.dumps(answer, indent=2)]
    else:
        titles = (f"A: {given.a}, {a.job}", f"B: {given.b}, {b.job}")
        table = laid_out(COLUMNS, list(rows(a, b)), screen_of(sys.stdout, invocation.environ))
        notes = (f"not comparable: {each}" for each in warnings)
        lines = [*map(safe, titles), *table, *map(safe, notes)]
    print_lines(lines)
    for text, (holds, why) in outcomes.items():
        if holds is not False:
            print(f"roofline-exporter: --fail-if {one_line(text)}: {why}", file=sys.stderr)
    return FAILED if True in found else NOT_KNOWN if None in found else STOPPED
