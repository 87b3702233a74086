# SPDX-License-Identifier: Apache-2.0
"""Size and colours of a terminal; escape, measure, cut and wrap text for it."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TextIO

PIPE_COLUMNS = 160
"""The width of output that is not a terminal."""
FALLBACK_COLUMNS, FALLBACK_LINES = 80, 24
"""The size of a terminal that does not report it."""
LONGEST_TEXT = 200
"""Limit of a text from outside, in characters."""

TONES = {"strong": "1", "faint": "2", "good": "32", "warning": "33", "bad": "31"}
"""SGR attributes of the eight standard colours, which every theme makes readable. The text alone
carries the meaning."""

_RESET = "\x1b[0m"
_ELLIPSIS = "…"
_PLAIN = str.maketrans({_ELLIPSIS: ".", "\N{EN DASH}": "-", "·": "|", "°": " "})
_REGIONAL = range(0x1F1E6, 0x1F200)


@dataclass(frozen=True, slots=True)
class Screen:
    """The size, colours and encoding of the output."""

    columns: int = PIPE_COLUMNS
    lines: int | None = None
    """None for output that is not a terminal."""
    colour: bool = False
    moves: bool = False
    """Whether the cursor can be moved."""

    def painted(self, text: str, tone: str) -> str:
        """Return the text in the colours of a tone, if colours are enabled."""
        if not self.colour or not tone or not text:
            return text
        return f"\x1b[{TONES[tone]}m{text}{_RESET}"

    def paragraph(self, text: str, tone: str) -> Iterator[str]:
        """Yield the text in the colours of a tone, on lines that fit."""
        return (self.painted(line, tone) for line in wrapped(text, self.columns))


def screen_of(stream: TextIO, environ: Mapping[str, str]) -> Screen:
    """Return the stream's present screen; a terminal may be resized at any time.

    Colours follow https://no-color.org and ``TERM=dumb``.
    """
    if not stream.isatty():
        return Screen()
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except OSError:
        columns, lines = 0, 0
    is_capable = environ.get("TERM", "dumb") != "dumb"
    return Screen(
        columns or FALLBACK_COLUMNS,
        lines or FALLBACK_LINES,
        colour=is_capable and not environ.get("NO_COLOR"),
        moves=is_capable,
    )


def safe(text: str) -> str:
    """Return text from outside as one harmless line of at most `LONGEST_TEXT` characters.

    Control characters and bidi marks are escaped; combining marks are dropped.
    """
    return _harmless(text[:LONGEST_TEXT])[:LONGEST_TEXT]


def _harmless(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else repr(char)[1:-1]
        for char in unicodedata.normalize("NFC", text)
        if unicodedata.category(char) not in ("Mn", "Me")
    )


def cells(text: str) -> int:
    """Return the width of the text in cells; East Asian and emoji characters take two."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(char: str) -> int:
    # Terminals disagree on the width of regional indicators (flags): two is the maximum.
    wide = unicodedata.east_asian_width(char) in "WF" or ord(char) in _REGIONAL
    return 2 if wide else 1


def clip(text: str, width: int) -> str:
    """Return the text if it fits, else its start and an ellipsis; never wider than `width`."""
    if cells(text) <= width:
        return text
    if width <= 0:
        return ""
    taken, end = 0, 0
    for end, char in enumerate(text):  # noqa: B007
        taken += _cells_of(char)
        if taken > width - 1:
            break
    return text[:end].rstrip() + _ELLIPSIS


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return the text, cut or padded to exactly `width` cells."""
    clipped = clip(text, width)
    space = " " * (width - cells(clipped))
    return space + clipped if right else clipped + space


def wrapped(text: str, width: int) -> Iterator[str]:
    """Yield the words of the text, made harmless, on lines of at most `width` cells."""
    line = ""
    for word in _harmless(" ".join(text.split())).split():
        longer = f"{line} {word}" if line else word
        if cells(longer) <= width or not line:
            line = longer
        else:
            yield clip(line, width)
            line = word
    yield clip(line, width)


def encodable(text: str, encoding: str | None) -> str:
    """Return the text with characters that the encoding lacks replaced by similar ones."""
    codec = encoding or "ascii"
    try:
        text.encode(codec)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(codec, "replace").decode(codec)
    return text


def print_lines(lines: Iterable[str], *, flush: bool = False) -> None:
    """Print lines in the encoding of standard output, with `flush` each at once."""
    for line in lines:
        print(encodable(line, sys.stdout.encoding), flush=flush)
