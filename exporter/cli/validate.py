# SPDX-License-Identifier: Apache-2.0
"""Why a daemon with these settings would not start, or would start without what they ask for."""

from __future__ import annotations

import grp
from collections.abc import Callable, Iterator
from functools import partial

from exporter.cli.config import Settings
from exporter.cli.readers import play_problems
from exporter.errors import ConfigError, ExporterError, one_line
from exporter.sources.interface import TRAINING
from exporter.sources.simulate import load_scenario
from exporter.specs import SpecBook, load_specs
from exporter.web.server.listener import listen


def refusals(settings: Settings) -> Iterator[str]:
    """Yield every problem, each on one line; nothing is started and nothing is changed.

    Whether the port is free is not tried: a daemon with these settings may be running.
    """
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


def _group_problem(settings: Settings) -> Iterator[str]:
    """The socket for training reports would not be opened."""
    group = settings.training_socket_group
    if group is None or group.isdecimal() or TRAINING not in settings.sources:
        return
    try:
        grp.getgrnam(group)
    except KeyError:
        place = _place(settings, "training.socket-group")
        yield f"{place}: expected a group of this machine, there is no group '{one_line(group)}'"


def _address_problem(settings: Settings) -> Iterator[str]:
    """The server would not listen: a host is not known, or is another machine's."""
    host = settings.web_listen_address.host
    try:
        listen(host, 0).close()
    except ExporterError as error:
        # Python repeats the address after the reason, with the port that was tried.
        reason = str(getattr(error.__cause__, "strerror", error)).partition(" (while")[0]
        place = _place(settings, "web.listen-address")
        yield f"{place}: expected an address of this machine, not {host or '*'} ({reason})"


def _place(settings: Settings, name: str) -> str:
    """Return where a setting was made, as messages begin."""
    return settings.given[name].place if name in settings.given else f"--{name}"
