# SPDX-License-Identifier: Apache-2.0
"""The exceptions that callers tell apart, and how their messages stay on one line.

* ExporterError
  * ConfigError: a flag, variable, YAML key or spec file is wrong (exit code 2)
    * ConfigErrors: several things of one file are
  * SourceError: a source cannot be read
    * LibraryUnavailable: the driver library cannot be loaded or initialised now
    * DeviceGone: this GPU fell off the bus, was reset or removed
    * DeviceSilent: this GPU is there, but not one of its readings answers
"""

from __future__ import annotations

import errno
from collections.abc import Sequence


class ExporterError(Exception):
    """Base of everything that this package raises on purpose; its message is one line."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


MOST_PROBLEMS = 100
"""At most that many are named, of one origin and of all together."""


class ConfigError(ExporterError):
    """Bad input: each message names the place, the key and what was expected."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Every problem, each on a line."""
        return (str(self),)


class ConfigErrors(ConfigError):
    """All problems of one file; the message is the first and the number of others."""

    def __init__(self, problems: Sequence[str]) -> None:
        """Take at least one problem, in the order of the file."""
        self._problems = limited([one_line(problem) for problem in problems])
        more = len(self._problems) - 1
        others = f" (and {more} more problem{'s' if more > 1 else ''})" if more else ""
        super().__init__(f"{self._problems[0]}{others}")

    @property
    def problems(self) -> tuple[str, ...]:
        """Every problem, each on a line; beyond MOST_PROBLEMS the last line says that."""
        return self._problems


def limited(problems: Sequence[str]) -> tuple[str, ...]:
    """Return the first MOST_PROBLEMS, and a line that there may be more."""
    if len(problems) <= MOST_PROBLEMS:
        return tuple(problems)
    more = f"only the first {MOST_PROBLEMS} problems are named, there may be more"
    return (*problems[:MOST_PROBLEMS], more)


class SourceError(ExporterError):
    """A source could not be read."""


class LibraryUnavailable(SourceError):
    """The driver library cannot be loaded or initialised at present, or stopped answering."""


class DeviceGone(SourceError):
    """The GPU fell off the bus, was reset or is not there any more."""


class DeviceSilent(SourceError):
    """The GPU is there, but not one of its readings answers."""


OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Of descriptors or memory: the fault of nothing that the error names."""


def out_of_resources(error: BaseException | None) -> bool:
    """Return whether an error, or its cause, is a lack of descriptors or memory."""
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) in OUT_OF_RESOURCES:
            return True
        error = error.__cause__ or error.__context__
    return False


def shown(value: object) -> str:
    """Return a value as messages show it: its representation, cut at 60 characters."""
    return clipped(repr(value))


def clipped(text: str) -> str:
    """Return text as messages quote it: cut at 60 characters."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def one_line(text: str) -> str:
    """Return the text with line breaks, control and other unprintable characters escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
