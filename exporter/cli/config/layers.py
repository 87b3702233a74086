# SPDX-License-Identifier: Apache-2.0
"""Merges flags, environment, YAML file and defaults; collects what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from exporter.cli.config.coerce import Unexpected, shown
from exporter.cli.config.flags import (
    BY_NAME,
    BY_VARIABLE,
    FLAGS,
    PREFIX,
    Flag,
    Given,
    Settings,
    settings_of,
)
from exporter.cli.config.parser import Parser, did_you_mean, parse
from exporter.errors import MOST_PROBLEMS, ConfigError, clipped, one_line

FOREIGN_PREFIX = "ROOFLINE_JOB_"
"""Variables that the client in training jobs reads; a daemon may see them too."""

_SECTIONS = tuple(
    dict.fromkeys(
        flag.name[: dot.start()] for flag in FLAGS for dot in re.finditer(r"\.", flag.name)
    )
)
_SERVICE_HOST = "_SERVICE_HOST"
_SERVICE_REST = re.compile(r"SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?")


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The result of a reload."""

    settings: Settings
    needs_restart: tuple[str, ...]
    """Flags whose new value holds only after a restart; `settings` keeps their old one."""


@dataclass(slots=True)
class _Layer:
    """The values that one origin sets, by flag name, and its problems."""

    given: dict[str, Given] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def is_hopeless(self) -> bool:
        """True after so many problems that the rest is skipped; suggestions cost time."""
        return len(self.problems) > MOST_PROBLEMS

    def take(self, flag: Flag, text: str, place: str, base: Path | None = None) -> None:
        try:
            value = flag.kind.parse(text)
        except Unexpected as error:
            self.refuse(place, str(error) or flag.kind.expected, shown(flag.kind.public(text)))
            return
        if base is not None and flag.kind.is_path and isinstance(value, Path):
            value = base / value
        self.given[flag.name] = Given(value, flag.kind.public(text), place)

    def refuse(self, place: str, expected: str, got: str) -> None:
        self.problems.append(f"{place}: expected {expected}, got {got}")


def load(argv: Sequence[str], environ: Mapping[str, str], parser: Parser | None = None) -> Settings:
    """Return the effective settings; raise ConfigError with the first problem.

    `argv` starts after the command's name; `parser` knows the command's own options.
    """
    settings, problems = resolve(argv, environ, parser)
    if problems:
        raise ConfigError(problems[0])
    return settings


def resolve(
    argv: Sequence[str], environ: Mapping[str, str], parser: Parser | None = None
) -> tuple[Settings, list[str]]:
    """Return the settings of all valid values, and all problems, each on one line."""
    flags, variables, file = _from_flags(argv, parser), _from_environment(environ), _Layer()
    config_file = (variables.given | flags.given).get("config.file")
    if config_file is not None and config_file.value is not None:
        file = _from_file(config_file.value)
    problems = flags.problems + variables.problems + file.problems
    given = file.given | variables.given | flags.given
    _order_intervals(given, problems)
    return settings_of(given), problems


def reload(old: Settings, argv: Sequence[str], environ: Mapping[str, str]) -> Reloaded:
    """Read everything again; raise ConfigError if it is bad: the old settings then stay."""
    new = load(argv, environ)
    changed = [flag for flag in FLAGS if not flag.reloadable and old.value(flag) != new.value(flag)]
    kept = {flag.attribute: getattr(old, flag.attribute) for flag in changed}
    needs_restart = tuple(flag.name for flag in changed)
    given = {name: new.given[name] for name in new.given if name not in needs_restart}
    given |= {name: old.given[name] for name in needs_restart if name in old.given}
    return Reloaded(replace(new, **kept, given=given), needs_restart)


def _order_intervals(given: dict[str, Given], problems: list[str]) -> None:
    """Hold poll.slow-interval to at least poll.interval: refuse it if set, else raise it."""
    fast, slow = given.get("poll.interval"), given.get("poll.slow-interval")
    least = fast.value if fast else Settings().poll_interval_seconds
    if slow is None and fast and least > Settings().poll_slow_interval_seconds:
        given["poll.slow-interval"] = replace(fast, place="raised to poll.interval")
    elif slow and slow.value < least:
        text = fast.text if fast else BY_NAME["poll.interval"].default
        problems.append(
            f"{slow.place}: expected at least poll.interval ({text}), got {shown(slow.text)}"
        )


def _from_flags(argv: Sequence[str], parser: Parser | None) -> _Layer:
    arguments = parse(argv, parser)
    layer = _Layer(problems=list(arguments.problems))
    for name, text in arguments.flags.items():
        layer.take(BY_NAME[name], text, f"--{name}")
    return layer


def _from_environment(environ: Mapping[str, str]) -> _Layer:
    """Read ``ROOFLINE_*``; an empty variable counts as not set."""
    layer = _Layer()
    services = tuple(
        name.removesuffix(_SERVICE_HOST) + "_" for name in environ if name.endswith(_SERVICE_HOST)
    )
    for name in sorted(environ):
        flag = BY_VARIABLE.get(name)
        if flag is not None and environ[name]:
            layer.take(flag, environ[name], name)
        elif flag is None and name.startswith(PREFIX) and not _is_foreign(name, services):
            nearest = did_you_mean(name, BY_VARIABLE, PREFIX)
            layer.problems.append(f"{one_line(clipped(name))}: unknown variable{nearest}")
        if layer.is_hopeless:
            break
    return layer


def _is_foreign(variable: str, services: Sequence[str]) -> bool:
    """Return whether jobs read this variable, or Kubernetes set it for a Service's name."""
    return variable.startswith(FOREIGN_PREFIX) or any(
        variable.startswith(service) and _SERVICE_REST.fullmatch(variable, len(service))
        for service in services
    )


def _from_file(path: Path) -> _Layer:
    from exporter.yaml_lines import load as load_yaml  # loaded only where there is a file

    layer = _Layer()
    try:
        document = load_yaml(path)
    except ConfigError as error:
        layer.problems.append(str(error))
        return layer
    if document.value is None:
        return layer
    if not isinstance(document.value, dict):
        layer.refuse(document.where(()), "keys such as poll", _description(document.value))
        return layer
    for key_path, value in _leaves((), document.value):
        name = ".".join(key_path)
        place = f"{document.where(key_path)}: {one_line(clipped(name))}"
        _take_key(layer, name, value, place, path.parent)
        if layer.is_hopeless:
            break
    return layer


def _leaves(
    above: tuple[str, ...], mapping: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Walk down the sections of the table only, so that unknown keys are named at their top."""
    for key, value in mapping.items():
        key_path = (*above, key)
        name = ".".join(key_path)
        is_empty_section = value is None and name not in BY_NAME
        if name in _SECTIONS and (isinstance(value, dict) or is_empty_section):
            yield from _leaves(key_path, value or {})
        else:
            yield key_path, value


def _take_key(layer: _Layer, name: str, value: Any, place: str, base: Path) -> None:
    flag = BY_NAME.get(name)
    if flag is None and name in _SECTIONS:
        example = next(flag.name for flag in FLAGS if flag.name.startswith(f"{name}."))
        layer.refuse(place, f"keys below it, such as {example}", _description(value))
    elif name == "config.file":
        layer.problems.append(f"{place}: a file cannot name another, expected it in a flag")
    elif flag is None:
        nearest = did_you_mean(name, [*BY_NAME, *_SECTIONS])
        layer.problems.append(f"{place}: unknown key{nearest}")
    elif name in layer.given:
        layer.problems.append(f"{place}: set twice")
    else:
        text = _text(value, flag)
        if text is None:
            layer.refuse(place, flag.kind.expected, _description(value))
        else:
            layer.take(flag, text, place, base)


def _text(value: Any, flag: Flag) -> str | None:
    """Return a YAML value as it would be written in a flag, or None if it cannot be."""
    if isinstance(value, bool):
        return str(value).lower() if flag.is_switch else None
    if isinstance(value, list):
        texts = [_text(item, flag) for item in value if not isinstance(item, list)]
        items = [text for text in texts if text is not None]
        return ",".join(items) if flag.kind.is_list and len(items) == len(value) else None
    return str(value) if isinstance(value, str | int | float) else None


def _description(value: Any) -> str:
    """Return how a message describes a YAML value of the wrong type."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "nothing"
    return shown(str(value).lower() if isinstance(value, bool) else str(value))
