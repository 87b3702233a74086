# SPDX-License-Identifier: Apache-2.0
"""``check-config``: every problem of the configuration, one on a line."""

from __future__ import annotations

import grp
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from exporter.cli import config
from exporter.cli.command import STOPPED, USAGE, Invocation
from exporter.errors import ConfigError, ExporterError, limited, one_line


def run(invocation: Invocation) -> int:
    """Print the problems, or that there is none; return the exit code."""
    found = problems(invocation.argv, invocation.environ, invocation.parser)
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        return USAGE
    print("configuration is valid")
    return STOPPED


def problems(
    argv: Sequence[str], environ: Mapping[str, str], parser: config.Parser | None = None
) -> tuple[str, ...]:
    """Return every problem for which a daemon would not start, each on one line.

    Those are the problems of the settings, of the files that they name, and of what they ask of
    this machine. Beyond MOST_PROBLEMS they are not named; the last line then says so.
    """
    settings, found = config.resolve(argv, environ, parser)
    return limited([*found, *_refusals(settings)])


def _refusals(settings: config.Settings) -> Iterator[str]:
    """Yield every problem, each on one line; nothing is started and nothing is changed.

    Whether the port is free is not tried: a daemon with these settings may be running.
    """
    # Imported late, so that help and mistakes on the command line are answered at once.
    from exporter.cli.readers import play_problems
    from exporter.sources.simulate import load_scenario
    from exporter.specs import SpecBook, load_specs

    books: list[SpecBook] = []
    yield from _raised(lambda: books.append(load_specs(settings.specs)))
    for book in books:
        yield from _raised(partial(load_scenario, settings.demo_scenario, book))
    yield from play_problems(settings)
    if settings.web_config_file is not None:
        from exporter.web.access.reload import load as load_web_config

        yield from _raised(partial(load_web_config, settings.web_config_file))
    yield from _group_problem(settings)
    yield from _address_problem(settings)


def _raised(load: Callable[[], object]) -> tuple[str, ...]:
    try:
        load()
    except ConfigError as error:
        return error.problems
    return ()


def _group_problem(settings: config.Settings) -> Iterator[str]:
    """Why the socket for training reports could not be opened."""
    group = settings.training_socket_group
    if group is None or group.isdecimal() or "training" not in settings.sources:
        return
    try:
        grp.getgrnam(group)
    except KeyError:
        place = _place(settings, "training.socket-group")
        yield f"{place}: expected a group of this machine, there is no group '{one_line(group)}'"


def _address_problem(settings: config.Settings) -> Iterator[str]:
    """Why the server could not listen: a host is unknown, or belongs to another machine."""
    from exporter.web.server.server import listen

    host = settings.web_listen_address.host
    try:
        listen(host, 0).close()
    except ExporterError as error:
        # Python repeats the address after the reason, with the port that was tried.
        reason = str(getattr(error.__cause__, "strerror", error)).partition(" (while")[0]
        place = _place(settings, "web.listen-address")
        yield f"{place}: expected an address of this machine, not {host or '*'} ({reason})"


def _place(settings: config.Settings, name: str) -> str:
    """Return the origin of a setting, with which its message begins."""
    return settings.given[name].place if name in settings.given else f"--{name}"
