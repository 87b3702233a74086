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
from collections.abc import Mapping
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
    builder = _Builder(name, lines)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        raise ConfigError(_syntax_message(name, error)) from error
    return Document(name, builder.value, builder.lines)


class _Builder:
    """Turns parser events into data, one container at a time, without recursion."""

    def __init__(self, name: str, keeps_lines: bool) -> None:
        self.name = name
        self._keeps_lines = keeps_lines
        self.value: Any = None
        self.lines: dict[KeyPath, int] = {}
        self._documents = 0
        self._nodes = 0
        self._open: list[tuple[KeyPath, dict[str, Any] | list[Any]]] = []
        self._key: str | None = None

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._fail(line, "a second document, expected one")
        elif isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            name = clipped(str(event.anchor))
            self._fail(line, f"anchor or alias '{name}', expected the value written out")
        elif isinstance(event, yaml.ScalarEvent):
            if self._expects_key():
                self._take_key(event.value, line)
            else:
                self._put(self._scalar(event, line), line)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._take_container(event, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()

    def _expects_key(self) -> bool:
        return bool(self._open) and self._key is None and isinstance(self._open[-1][1], dict)

    def _take_key(self, key: str, line: int) -> None:
        path, mapping = self._open[-1]
        key_path = (*path, key)
        if key in mapping:
            first = self.lines.get(key_path)
            where = "" if first is None else f" (it is on line {first})"
            self._fail(line, f"key '{clipped(key)}' again, expected it once{where}")
        self._key = key
        self._note(key_path, line)

    def _take_container(self, event: Any, line: int) -> None:
        if self._expects_key():
            self._fail(line, "a list or mapping as a key, expected text")
        if event.tag is not None:
            self._fail(line, f"tag {clipped(event.tag)}, expected plain YAML")
        if len(self._open) >= MAX_DEPTH:
            self._fail(line, f"nested deeper than {MAX_DEPTH} levels, expected fewer")
        container: dict[str, Any] | list[Any] = (
            {} if isinstance(event, yaml.MappingStartEvent) else []
        )
        self._open.append((self._put(container, line), container))

    def _put(self, value: Any, line: int) -> KeyPath:
        """Place a value where the parser stands and return its path."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._fail(line, f"more than {MAX_NODES} values, expected a smaller YAML file")
        if not self._open:
            self.value = value
            return ()
        parent_path, parent = self._open[-1]
        if isinstance(parent, list):
            path: KeyPath = (*parent_path, len(parent))
            self._note(path, line)
            parent.append(value)
            return path
        key = self._key
        assert key is not None  # noqa: S101 - the parser alternates keys and values
        self._key = None
        parent[key] = value
        return (*parent_path, key)

    def _note(self, path: KeyPath, line: int) -> None:
        if self._keeps_lines:
            self.lines[path] = line

    def _scalar(self, event: Any, line: int) -> Any:
        if event.tag is not None and event.tag not in _TEXT_TAGS:
            self._fail(line, f"tag {clipped(event.tag)}, expected plain YAML")
        if event.tag is not None or not event.implicit[0]:
            return event.value
        try:
            return _plain(event.value)
        except ValueError:
            self._fail(line, "a number with too many digits, expected fewer")

    def _fail(self, line: int, problem: str) -> NoReturn:
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
