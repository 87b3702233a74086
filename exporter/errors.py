# SPDX-License-Identifier: Apache-2.0
"""The exceptions that callers tell apart, and how their messages stay on one line.

* ExporterError
  * ConfigError: a flag, variable, YAML key or spec file is wrong (exit code 2)
  * SourceError: a source cannot be read
    * LibraryUnavailable: the driver library cannot be loaded or initialised now
    * DeviceGone: this GPU fell off the bus, was reset or removed
    * DeviceSilent: this GPU is there, but not one of its readings answers
"""

from __future__ import annotations


class ExporterError(Exception):
    """Base of everything that this package raises on purpose."""


class ConfigError(ExporterError):
    """Bad input: each message is one line that names the place, the key and what was expected."""


class SourceError(ExporterError):
    """A source could not be read."""


class LibraryUnavailable(SourceError):
    """The driver library cannot be loaded or initialised at present, or stopped answering."""


class DeviceGone(SourceError):
    """The GPU fell off the bus, was reset or is not there any more."""


class DeviceSilent(SourceError):
    """The GPU is there, but not one of its readings answers."""


def shown(value: object) -> str:
    """Return a value as messages show it: its representation, cut at 60 characters."""
    return clipped(repr(value))


def clipped(text: str) -> str:
    """Return text as messages quote it: cut at 60 characters."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def one_line(text: str) -> str:
    """Return the text with line breaks, control and other unprintable characters escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
