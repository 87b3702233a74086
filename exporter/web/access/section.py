# SPDX-License-Identifier: Apache-2.0
"""One mapping of the web configuration file, read strictly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from exporter.errors import ConfigError, clipped, one_line, shown
from exporter.yaml_lines import Document, KeyPath

_LONGEST_COMPARED = 100

Key = str | tuple[str | int, ...] | None
"""Of the section's own keys, of an item below one, or None for the section itself."""


class Section:
    """A mapping whose keys are known, or any where `known` is None; nothing is an empty one.

    Everything raises ConfigError, in one line, for what is not as expected.
    """

    def __init__(
        self, document: Document, path: KeyPath, value: Any, known: Sequence[str] | None
    ) -> None:
        self._document = document
        self._path = path
        if value is None:
            value = {}
        if not isinstance(value, dict):
            # What is there instead is not quoted: it may be a secret.
            keys = f" of {', '.join(known)}" if known else ""
            raise self.error(None, f"expected a mapping{keys}")
        self.values: Mapping[str, Any] = value
        if known is None:
            return
        for key in value:
            if key not in known:
                raise self.error(key, f"not known, {_expected(key, known)}")

    def place(self, key: Key) -> str:
        """Return where this key stands, as messages begin."""
        parts = () if key is None else key if isinstance(key, tuple) else (key,)
        path = (*self._path, *parts)
        where = one_line(self._document.where(path))
        if not path:
            return where
        return f"{where}: key '{one_line(clipped('.'.join(str(part) for part in path)))}'"

    def error(self, key: Key, problem: str) -> ConfigError:
        """Return the error that something is wrong with this key."""
        return ConfigError(f"{self.place(key)}: {one_line(problem)}")

    def is_given(self, key: str) -> bool:
        """Return whether something is said; neither nothing nor an empty text is."""
        return self.values.get(key) not in (None, "")

    def section(self, key: str, known: Sequence[str] | None) -> Section:
        """Return the mapping below a key."""
        return Section(self._document, (*self._path, key), self.values.get(key), known)

    def text(self, key: str) -> str | None:
        """Return a text."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, f"expected text, got {_described(value)}")
        return value

    def secret(self, key: str) -> str | None:
        """Return a text that no message quotes."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, "expected text in PEM form")
        return value

    def scalar(self, key: str) -> str | None:
        """Return a text, or a whole number as text."""
        value = self.values.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9:
            return str(value)
        return self.text(key)

    def boolean(self, key: str) -> bool | None:
        """Return a boolean."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, f"expected true or false, got {_described(value)}")
        return value

    def integer(self, key: str, most: int) -> int | None:
        """Return a whole number from 0 on."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise self.error(
                key, f"expected a whole number from 0 to {most}, got {_described(value)}"
            )
        return value

    def choice(self, key: str, known: Iterable[str]) -> str | None:
        """Return one of the known words; empty is nothing."""
        text = self.text(key)
        return self.known(key, text, known) if text else None

    def known(self, key: Key, text: str, known: Iterable[str]) -> str:
        """Return the text if it is one of the known words."""
        words = tuple(known)
        if text not in words:
            raise self.error(key, f"{shown(text)} is not known, {_expected(text, words)}")
        return text

    def words(self, key: str, most: int, longest: int) -> tuple[str, ...]:
        """Return a list of texts, none of them empty."""
        value = self.values.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > most:
            raise self.error(key, f"expected a list of at most {most} texts")
        for position, item in enumerate(value):
            if not isinstance(item, str) or not 0 < len(item) <= longest:
                raise self.error((key, position), f"expected text, got {_described(item)}")
        return tuple(value)


def _expected(got: str, known: Sequence[str]) -> str:
    near = get_close_matches(got, known, n=1) if len(got) <= _LONGEST_COMPARED else []
    return f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"


def _described(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 64:
        return "a very large number"
    return shown(value)
