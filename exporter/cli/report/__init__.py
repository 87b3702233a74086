# SPDX-License-Identifier: Apache-2.0
"""Runs ``report``: GPU-hours, stalls, energy and cost of a fleet, as a table, page, CSV or JSON."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from exporter.cli import config
from exporter.cli.command import STOPPED, Invocation
from exporter.cli.config.coerce import URL, choice, duration, option
from exporter.cli.daemon_address import daemon_of, secret
from exporter.cli.http_get import DaemonAddress
from exporter.cli.report import queries
from exporter.cli.report.figures import Figures, report
from exporter.errors import ConfigError, SourceError
from exporter.files import replace_file

BY = choice("owner", "namespace", "user", "job", "node", "model")
FORMAT = choice("table", "html", "csv", "json")
SUFFIX = {"table": "txt"}
"""Of a file, where it is not the name of the format."""
RANGE = duration("1h", "366d")
_OPTIONS = (
    ("--prometheus", "URL", None, "The Prometheus that scrapes the exporters."),
    ("--range", RANGE.metavar, "7d", "How far back, in whole hours; from 2d on in whole days."),
    ("--by", BY.metavar, "owner", "Whose GPU-hours."),
    ("--format", FORMAT.metavar, "table", "html is one file that loads nothing."),
    ("--output", "PATH", None, "A file, or a folder for gpu-report-DAY.html, not standard output."),
    ("--bearer-file", "FILE", None, "A file with a token for Prometheus; --url.* are for it, too."),
)


def add_options(parser: config.Parser) -> None:
    """Add the options of the command."""
    for name, metavar, default, text in _OPTIONS:
        said = f"{text} (default: {default})" if default else text
        parser.own.add_argument(name, metavar=metavar, default=default, help=said)


def run(invocation: Invocation) -> int:
    """Print the report; return the exit code."""
    settings, given = invocation.settings(), invocation.options
    by, form = option("--by", BY, given.by), option("--format", FORMAT, given.format)
    seconds = option("--range", RANGE, given.range)
    if given.prometheus is None:
        raise ConfigError("report: expected --prometheus URL, such as http://localhost:9090")
    url = option("--prometheus", URL, given.prometheus)
    server = daemon_of(replace(settings, url=url), "report")
    if given.bearer_file is not None:
        token = f"Bearer {secret('--bearer-file', Path(given.bearer_file))}"
        shown = replace(server.credentials(), authorization=token)
        server = DaemonAddress(url, lambda: shown)

    from exporter.cli.report.html import page
    from exporter.cli.report.table import as_csv, table
    from exporter.cli.terminal.screen import Screen, encodable, screen_of

    found = _report(server, by, seconds)
    screen = screen_of(sys.stdout, invocation.environ) if given.output is None else Screen()
    text = {
        "table": lambda: table(found, screen),
        "html": lambda: page(found),
        "csv": lambda: as_csv(found),
        "json": lambda: f"{json.dumps(found, indent=2)}\n",
    }[form]()
    if given.output is None:
        print(encodable(text, sys.stdout.encoding), end="")
    else:
        day = time.strftime("%Y-%m-%d", time.gmtime(found["end"]))
        _write(Path(given.output), text, f"gpu-report-{day}.{SUFFIX.get(form, form)}")
    return STOPPED


def _write(path: Path, text: str, name: str) -> None:
    """Write the file whole, or leave the one that is there; in a folder it has this name."""
    path = path / name if path.is_dir() else path
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise ConfigError(f"--output: {path}: {error.strerror}") from error


def _report(server: DaemonAddress, by: str, seconds: float) -> Figures:
    at = queries.range_of(seconds, time.time())
    steps = queries.ask(server, queries.STEPS, at)
    if not steps:
        problem = "no gpu_limited_seconds_total in this range, which roofline-exporter would have"
        raise SourceError(f"{server.url}: {problem}")
    if by == "owner" and not queries.ask(server, queries.RULES, at):
        problem = "none of the recording rules of docs/rules.md, which --by owner needs"
        raise SourceError(f"{server.url}: {problem} (the others do not)")
    answers = {
        name: queries.ask(server, queries.expression(*figure, by), at)
        for name, figure in queries.FIGURES.items()
    }
    step = at.step_seconds
    last = queries.Range(at.end - step, at.end, step, step)
    prices = queries.ask(server, queries.PRICES, last)
    return report({**answers, "steps": steps, "prices": prices}, by, at)
