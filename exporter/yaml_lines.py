# SPDX-License-Identifier: Apache-2.0
"""Reads a YAML file as plain data that still knows the line of every key.

Values are mappings with text keys, lists, text, whole numbers, floats, booleans and ``None``. The
data is built straight from the parser's events, so that depth and number are bounded, repeated keys
are seen and nothing but plain data can be made. Anchors, aliases, ``%TAG`` and tags other than
``!!str`` are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
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

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile(
    "[^\x09\x0a\x0d\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_TAG_DIRECTIVE = re.compile(r"^%TAG\b", re.MULTILINE)
_TEXT_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})

_WORDS: dict[str, bool | None] = {
    form: value
    for words, value in (
        (("true", "yes", "on"), True),
        (("false", "no", "off"), False),
        (("null",), None),
    )
    for word in words
    for form in (word, word.capitalize(), word.upper())
} | {"": None, "~": None}

# As YAML 1.2 has it: no octal by a leading zero and no base 60, so 0123 and 1:30 stay text.
# Also text is 1E30, an exponent with neither point nor sign: PCI device ids look like that.
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+][0-9]+)"
)
_NOT_FINITE = re.compile(r"(?P<sign>[-+]?)\.(?P<name>inf|Inf|INF)|\.(?:nan|NaN|NAN)")


@dataclass(frozen=True, slots=True)
class Document:
    """The data of one YAML document and where its keys stand."""

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
        return ConfigError(one_line(f"{self.where(key_path)}: key '{key}': {problem}"))


def load(path: Path, *, lines: bool = True) -> Document:
    """Read a regular file of at most 4 MiB of UTF-8; raise ConfigError with one line.

    Without `lines` the document does not know where its keys stand, and takes half the memory.
    """
    name = one_line(os.fspath(path))
    try:
        data = read_regular(path, MAX_BYTES)
    except TooLargeError as error:
        raise ConfigError(f"{name}: {error.strerror}, expected a smaller YAML file") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{name}: cannot be read ({reason}), expected a YAML file") from error
    return loads(decoded(data, name), name, lines=lines)


def decoded(data: bytes, name: str) -> str:
    """Return UTF-8 as text; raise ConfigError with one line that begins with `name` if it is not.

    `name` stands for the file and has no line breaks.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{name}:{line}: byte 0x{data[error.start]:02x} is not UTF-8, expected UTF-8 text"
        ) from error


def loads(text: str, name: str, *, lines: bool = True) -> Document:
    """Read one document from `text`; `name` stands for the file in messages."""
    name = one_line(name)
    unprintable = _UNPRINTABLE.search(text)
    if unprintable:
        line = text.count("\n", 0, unprintable.start()) + 1
        code = ord(unprintable.group())
        raise ConfigError(f"{name}:{line}: control character U+{code:04X}, expected printable text")
    tag = _TAG_DIRECTIVE.search(text)
    if tag:  # the parser compares each with all others
        line = text.count("\n", 0, tag.start()) + 1
        raise ConfigError(f"{name}:{line}: a %TAG directive, expected plain YAML")
    reader = _Reader(name, lines)
    try:
        value = reader.document(yaml.parse(text, Loader=_LOADER))
    except yaml.YAMLError as error:
        raise ConfigError(_syntax_message(name, error)) from error
    return Document(name, value, reader.lines)


class _Reader:
    """Turns parser events into data; recursion ends at MAX_DEPTH."""

    def __init__(self, name: str, keeps_lines: bool) -> None:
        self.name = name
        self._keeps_lines = keeps_lines
        self.lines: dict[KeyPath, int] = {}
        self._nodes = 0

    def document(self, events: Iterator[Any]) -> Any:
        """Return what the one document holds; None if there is none."""
        value = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._fail(event, "a second document, expected one")
            elif isinstance(event, yaml.NodeEvent):
                value = self._value(event, (), events)
        return value

    def _value(self, event: Any, path: KeyPath, events: Iterator[Any]) -> Any:
        """Return what begins with this event; takes the rest of it from `events`."""
        self._refuse_alias(event)
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._fail(event, f"more than {MAX_NODES} values, expected a smaller YAML file")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if event.tag is not None:
            self._fail(event, f"tag {clipped(event.tag)}, expected plain YAML")
        if len(path) >= MAX_DEPTH:
            self._fail(event, f"nested deeper than {MAX_DEPTH} levels, expected fewer")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path, events)
        items: list[Any] = []
        while not isinstance(item := next(events), yaml.CollectionEndEvent):
            item_path = (*path, len(items))
            self._note(item_path, item)
            items.append(self._value(item, item_path, events))
        return items

    def _mapping(self, path: KeyPath, events: Iterator[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(key := next(events), yaml.CollectionEndEvent):
            self._refuse_alias(key)
            if not isinstance(key, yaml.ScalarEvent):
                self._fail(key, "a list or mapping as a key, expected text")
            key_path = (*path, key.value)
            if key.value in found:
                first = self.lines.get(key_path)
                where = "" if first is None else f" (it is on line {first})"
                self._fail(key, f"key '{clipped(key.value)}' again, expected it once{where}")
            self._note(key_path, key)
            found[key.value] = self._value(next(events), key_path, events)
        return found

    def _refuse_alias(self, event: Any) -> None:
        if event.anchor is not None:
            name = clipped(str(event.anchor))
            self._fail(event, f"anchor or alias '{name}', expected the value written out")

    def _note(self, path: KeyPath, event: Any) -> None:
        if self._keeps_lines:
            self.lines[path] = event.start_mark.line + 1

    def _scalar(self, event: Any) -> Any:
        if event.tag is not None and event.tag not in _TEXT_TAGS:
            self._fail(event, f"tag {clipped(event.tag)}, expected plain YAML")
        if event.tag is not None or not event.implicit[0]:
            return event.value
        try:
            return _plain(event.value)
        except ValueError:
            self._fail(event, "a number with too many digits, expected fewer")

    def _fail(self, event: Any, problem: str) -> NoReturn:
        line = event.start_mark.line + 1
        raise ConfigError(f"{self.name}:{line}: {one_line(problem)}")


def _is_number(text: str) -> bool:
    return any(form.fullmatch(text) for form in (_INTEGER, _HEXADECIMAL, _FLOAT))


def _plain(text: str) -> Any:
    """Return what an unquoted scalar means; ValueError where a number has too many digits."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > MAX_DIGITS and _is_number(text):
        raise ValueError("too many digits")
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    special = _NOT_FINITE.fullmatch(text)
    if special:
        return float(f"{special['sign']}inf") if special["name"] else float("nan")
    return text


def _syntax_message(name: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = f"{name}:{mark.line + 1}" if mark else name
    problem = getattr(error, "problem", None) or str(error)
    if "that cannot start any token" in problem:
        problem = "a tab or a reserved character starts a value or an indent"
    return f"{place}: {one_line(problem)}, expected valid YAML (indented with spaces)"
