# SPDX-License-Identifier: Apache-2.0
"""Reads a YAML file as plain data that still knows the line of every key.

Values are mappings with text keys, lists, text, whole numbers, floats, booleans and ``None``.
Anchors, aliases and tags other than ``!!str`` are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from exporter.errors import ConfigError, clipped, one_line
from exporter.files import TooLargeError, read_regular

KeyPath = tuple[str | int, ...]

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32
MAX_NODES = 50_000
"""Of values, containers among them: four times those of the bundled spec file."""
MAX_DIGITS = 1000

_UNPRINTABLE = re.compile(
    "[^\x09\x0a\x0d\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_TEXT_TAG = "tag:yaml.org,2002:str"
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

# As YAML 1.2 has it: no octal by a leading zero and no base 60, so 0123 and 1:30 stay text.
# Also text is 1E30, an exponent with neither point nor sign: PCI device ids look like that.
_CONVERTERS: tuple[tuple[str, Callable[[str], Any]], ...] = (
    (r"~|null|Null|NULL|", lambda text: None),
    (r"true|True|TRUE|yes|Yes|YES|on|On|ON", lambda text: True),
    (r"false|False|FALSE|no|No|NO|off|Off|OFF", lambda text: False),
    (
        r"[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F]+",
        lambda text: int(text.replace("_", ""), 16 if text.startswith("0x") else 10),
    ),
    (
        r"[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
        r"|[0-9]+[eE][-+][0-9]+|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
        lambda text: float(re.sub(r"\.(?=[a-zA-Z])", "", text)),
    ),
)
"""What an unquoted scalar of this form means; any other is text."""


@dataclass(frozen=True, slots=True)
class Document:
    """The data of one YAML document, and the line of each key."""

    name: str
    value: Any
    lines: Mapping[KeyPath, int]

    def line(self, key_path: KeyPath) -> int:
        """Return the line, from 1, of this key or list item, else of its nearest parent."""
        for length in range(len(key_path), 0, -1):
            line = self.lines.get(key_path[:length])
            if line is not None:
                return line
        return 1

    def where(self, key_path: KeyPath) -> str:
        """Return ``FILE:LINE`` of this key, as messages begin."""
        return f"{self.name}:{self.line(key_path)}"

    def error(self, key_path: KeyPath, problem: str) -> ConfigError:
        """Return the error, for the caller to raise, that something is wrong with this key."""
        key = ".".join(clipped(str(part)) for part in key_path)
        return ConfigError(f"{self.where(key_path)}: key '{key}': {problem}")


def load(path: Path) -> Document:
    """Read a regular file of at most 4 MiB of UTF-8; raise ConfigError with one line."""
    name = one_line(os.fspath(path))
    try:
        data = read_regular(path, MAX_BYTES)
    except TooLargeError as error:
        raise ConfigError(f"{name}: {error.strerror}, expected a smaller YAML file") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{name}: cannot be read ({reason}), expected a YAML file") from error
    return loads(decoded(data, name), name)


def decoded(data: bytes, name: str) -> str:
    """Return UTF-8 as text; raise ConfigError with one line that begins with `name` if it is not.

    `name` is that of the file and has no line breaks.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{name}:{line}: byte 0x{data[error.start]:02x} is not UTF-8, expected UTF-8 text"
        ) from error


def loads(text: str, name: str) -> Document:
    """Read one document from `text`; `name` is that of the file in messages."""
    name = one_line(name)
    unprintable = _UNPRINTABLE.search(text)
    if unprintable:
        line = text.count("\n", 0, unprintable.start()) + 1
        code = ord(unprintable.group())
        raise ConfigError(f"{name}:{line}: control character U+{code:04X}, expected printable text")
    reader = _Reader(text, name)
    try:
        value = reader.document()
    except yaml.YAMLError as error:
        raise ConfigError(_syntax_message(name, error)) from error
    return Document(name, value, reader.lines)


class _Reader:
    """Turns events into data and notes the line of every key."""

    def __init__(self, text: str, name: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._events = yaml.parse(text, Loader=_LOADER)
        self._name = name
        self._values = 0

    def document(self) -> Any:
        """Return the data of the one document; None where there is none."""
        value = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._fail(event, "a second document, expected one")
                value = self._value(next(self._events), ())
        return value

    def _value(self, event: Any, path: KeyPath) -> Any:
        self._check(event)
        self._values += 1
        if self._values > MAX_NODES:
            self._fail(event, f"more than {MAX_NODES} values, expected a smaller YAML file")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if len(path) >= MAX_DEPTH:
            self._fail(event, f"nested deeper than {MAX_DEPTH} levels, expected fewer")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        items: list[Any] = []
        while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
            items.append(self._noted(item, item, (*path, len(items))))
        return items

    def _mapping(self, path: KeyPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            self._check(key)
            if not isinstance(key, yaml.ScalarEvent):
                self._fail(key, "a list or mapping as a key, expected text")
            key_path = (*path, key.value)
            if key.value in found:
                first = f"(it is on line {self.lines[key_path]})"
                self._fail(key, f"key '{clipped(key.value)}' again, expected it once {first}")
            found[key.value] = self._noted(next(self._events), key, key_path)
        return found

    def _noted(self, event: Any, begins: Any, path: KeyPath) -> Any:
        self.lines[path] = begins.start_mark.line + 1
        return self._value(event, path)

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        is_plain = event.implicit[0]
        for form, convert in _CONVERTERS if is_plain else ():
            if re.fullmatch(form, text):
                if len(text) > MAX_DIGITS:
                    self._fail(event, "a number with too many digits, expected fewer")
                return convert(text)
        return text

    def _check(self, event: Any) -> None:
        """Refuse anchors, aliases and tags."""
        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        if anchor is not None:
            what = clipped(str(anchor))
            self._fail(event, f"anchor or alias '{what}', expected the value written out")
        if tag is not None and tag != _TEXT_TAG:
            self._fail(event, f"tag {clipped(tag)}, expected plain YAML")

    def _fail(self, event: Any, problem: str) -> NoReturn:
        raise ConfigError(f"{self._name}:{event.start_mark.line + 1}: {problem}")


def _syntax_message(name: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = f"{name}:{mark.line + 1}" if mark else name
    problem = getattr(error, "problem", None) or str(error)
    if "that cannot start any token" in problem:
        problem = "a tab or a reserved character starts a value or an indent"
    return f"{place}: {problem}, expected valid YAML (indented with spaces)"
