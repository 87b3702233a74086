# SPDX-License-Identifier: Apache-2.0
"""Reads the flags of a command line, and lays them out for ``--help``, from the flag table."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from textwrap import wrap
from typing import NoReturn

from exporter.cli.config.coerce import shown
from exporter.cli.config.flags import BY_NAME, FLAGS, Flag
from exporter.errors import MOST_PROBLEMS, ConfigError, clipped, one_line

LONGEST_NAME = 60
"""No known name is longer than half of it."""
_SEE = "(see roofline-exporter --help)"


@dataclass(frozen=True, slots=True)
class Arguments:
    """A parsed command line."""

    flags: Mapping[str, str]
    """The text of each flag that was given, by name; the last one counts."""
    options: argparse.Namespace
    """The command's own options."""
    problems: tuple[str, ...]


class Parser(argparse.ArgumentParser):
    """Every flag of the table; commands add their own options. Raises instead of exiting."""

    def __init__(self, usage: str = "roofline-exporter [FLAGS]", description: str = "") -> None:
        super().__init__(
            usage=usage,
            description=description,
            formatter_class=_Help,
            add_help=False,
            allow_abbrev=False,
            exit_on_error=False,
        )
        self.own = self.add_argument_group("options")
        self.own.add_argument(
            *("-h", "--help"),
            nargs="?",
            const="",
            metavar="all",
            help="Show this and exit; with =all, every flag of the command.",
        )
        self.own.add_argument("--version", action="store_true", help="Show the version and exit.")
        groups = {}
        self._flags: list[argparse.Action] = []
        for flag in FLAGS:
            section = flag.name.partition(".")[0] if "." in flag.name else "general"
            if section not in groups:
                groups[section] = self.add_argument_group(f"{section} flags")
            self._flags.append(_add(groups[section], flag))

    def shorten_help(self, sections: Collection[str]) -> None:
        """Limit the help to the flags of these sections: url is --url and --url.*."""
        for action in self._flags:
            if action.dest.partition(".")[0] not in sections:
                action.help = argparse.SUPPRESS
        self.epilog = "It takes every flag of the daemon, too: --help=all shows them."

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError in place of argparse's printed usage."""
        raise ConfigError(f"{message} {_SEE}")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help for a terminal of 80 columns, each flag's text below its name."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=6, width=79)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(text, width, break_on_hyphens=False)


def parse(argv: Sequence[str], parser: Parser | None = None) -> Arguments:
    """Read the words after the command; every problem is one line in the result."""
    parser = parser or Parser()
    try:
        namespace, extra = parser.parse_known_args(list(argv))
    except (argparse.ArgumentError, ConfigError) as error:
        return Arguments({}, argparse.Namespace(), (_problem(error),))
    values = vars(namespace)
    flags = {name: values.pop(name) for name in BY_NAME}
    given = {
        name: str(value).lower() if BY_NAME[name].is_switch else value
        for name, value in flags.items()
        if value is not None
    }
    problems = islice(_extra_problems(extra, parser), MOST_PROBLEMS + 1)
    return Arguments(given, namespace, tuple(problems))


def _add(group: argparse._ArgumentGroup, flag: Flag) -> argparse.Action:
    default = flag.default.replace(",", ", ") or "unset"
    text = f"{flag.help} (default: {default})".replace("%", "%%")
    if flag.is_switch:
        action = argparse.BooleanOptionalAction
        return group.add_argument(flag.option, dest=flag.name, action=action, help=text)
    return group.add_argument(flag.option, dest=flag.name, metavar=flag.kind.metavar, help=text)


def _problem(error: argparse.ArgumentError | ConfigError) -> str:
    if isinstance(error, ConfigError):
        return str(error)
    option = error.argument_name or ""
    flag = BY_NAME.get(option.removeprefix("--"))
    if flag and not flag.is_switch:
        return f"{option}: expected {flag.kind.expected}, got nothing"
    if error.message.startswith("ignored explicit argument"):
        return f"{option}: takes no value {_SEE}"
    return f"{option}: {one_line(error.message)} {_SEE}"


def _extra_problems(extra: Iterable[str], parser: Parser) -> Iterable[str]:
    """List the arguments that are no flag; what follows an unknown flag counts as its value."""
    known = tuple(parser._option_string_actions)
    after_unknown = False
    for word in extra:
        if word.startswith("-") and word != "--":
            name = word.partition("=")[0]
            yield f"unknown flag {one_line(clipped(name))}{did_you_mean(name, known, '--')} {_SEE}"
        elif not after_unknown:
            yield f"unexpected argument {shown(word)} {_SEE}"
        after_unknown = word.startswith("-") and "=" not in word


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return ``, did you mean NAME?`` for the nearest known name, else nothing.

    What all names start with, `prefix`, is left out of the comparison.
    """
    if len(name) > LONGEST_NAME:
        return ""
    from difflib import get_close_matches  # loaded only where there is a mistake

    rest = {word.removeprefix(prefix): word for word in known}
    near = get_close_matches(name.removeprefix(prefix), rest, n=1, cutoff=0.6)
    return f", did you mean {rest[near[0]]}?" if near else ""
