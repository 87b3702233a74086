# SPDX-License-Identifier: Apache-2.0
"""Runs ``compare``: two jobs side by side, for a person or as JSON; an exit code for scripts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from exporter.cli import config
from exporter.cli.command import FAILED, STOPPED, Invocation
from exporter.cli.config.coerce import choice, option
from exporter.cli.terminal.screen import encodable, safe, screen_of
from exporter.cli.terminal.table import Cell, Column, laid_out
from exporter.errors import ConfigError, one_line

NOT_KNOWN = 3
"""The exit code where a --fail-if needs a number that is not known."""
_TITLES = ("", "A", "B", "CHANGE", "")


def _column(at: int) -> Column[tuple[str, ...]]:
    return Column(_TITLES[at], lambda row: Cell(row[at]), at, most=40, right=0 < at < 4)


def add_options(parser: config.Parser) -> None:
    """Add the options of the command."""
    for name, text in (("a", "What run --summary wrote before."), ("b", "And after a change.")):
        parser.own.add_argument(name, metavar=name.upper(), help=text).required = False
    parser.own.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="EXPR",
        help="Exit with 1 if it holds: for a number of B, such as 'wait>20%%', or with a sign for "
        "its change, such as 'steps_per_second<-10%%'. Exit with 3 if that is not known.",
    )
    parser.own.add_argument(
        "--format", default="text", metavar="FORMAT", help="text or json. (default: text)"
    )


def run(invocation: Invocation) -> int:
    """Print the comparison; return the exit code."""
    invocation.settings()
    given = invocation.options
    form = option("--format", choice("text", "json"), given.format)
    if given.b is None:
        raise ConfigError("compare: expected two files of run --summary, such as a.json b.json")

    from exporter.cli.compare.comparison import FIGURES, not_comparable, rows, value
    from exporter.cli.compare.condition import condition
    from exporter.cli.compare.job_summary import read_summary

    conditions = [condition(text) for text in given.fail_if]
    jobs = a, b = read_summary(Path(given.a)), read_summary(Path(given.b))
    warnings = list(not_comparable(a, b))
    outcomes = {each.text: each.holds(a, b) for each in conditions}
    if form == "json":
        of_a, of_b = (
            {name: found for name in FIGURES if (found := value(job, name)) is not None}
            for job in jobs
        )
        held = {text: holds for text, (holds, _) in outcomes.items()}
        answer = {"a": of_a, "b": of_b, "not_comparable": warnings, "fail_if": held}
        lines = [json.dumps(answer, indent=2)]
    else:
        columns = [_column(at) for at in range(len(_TITLES))]
        table = laid_out(columns, list(rows(a, b)), screen_of(sys.stdout, invocation.environ))
        titles = [safe(f"A: {given.a}, {a.job}"), safe(f"B: {given.b}, {b.job}")]
        lines = [*titles, *table, *(safe(f"not comparable: {each}") for each in warnings)]
    for line in lines:
        print(encodable(line, sys.stdout.encoding))
    for text, (holds, why) in outcomes.items():
        if holds is not False:
            print(f"roofline-exporter: --fail-if {one_line(text)}: {why}", file=sys.stderr)
    any_of = {holds for holds, _ in outcomes.values()}
    return FAILED if True in any_of else NOT_KNOWN if None in any_of else STOPPED
