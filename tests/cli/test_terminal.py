# SPDX-License-Identifier: Apache-2.0
"""Text from outside becomes harmless, and is measured and cut in cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cli.terminal.screen import (
    LONGEST_TEXT,
    Screen,
    cells,
    clip,
    encodable,
    pad,
    safe,
    wrapped,
)

widths = st.integers(0, 60)


@given(st.text(max_size=400))
def test_safe_text_is_one_short_printable_line(text: str) -> None:
    """For any text."""
    found = safe(text)

    assert found.isprintable()
    assert len(found) <= LONGEST_TEXT


def test_safe_text_says_what_was_there() -> None:
    """Harmless text stays as it is, other characters are escaped."""
    assert safe("NVIDIA H100 80GB") == "NVIDIA H100 80GB"
    assert safe("a\x1b[31mb\n\u202ec") == "a\\x1b[31mb\\n\\u202ec"
    assert safe("e\u0301") == "\u00e9"
    assert safe("x\u0336\u0336") == "x"


@pytest.mark.parametrize(
    ("text", "width"),
    [("abc", 3), ("", 0), ("\u6f22\u5b57", 4), ("\U0001f680", 2), ("\u00e9", 1), ("\uff21", 2)],
)
def test_cells(text: str, width: int) -> None:
    """East Asian and emoji characters take two cells."""
    assert cells(text) == width


@given(st.text(max_size=80).map(safe), widths)
def test_clip_and_pad_keep_to_the_width(text: str, width: int) -> None:
    """Cut text fits, what fits is not cut, and padding fills it to the last cell."""
    assert cells(clip(text, width)) <= width
    if cells(text) <= width:
        assert clip(text, width) == text
    assert cells(pad(text, width)) == width
    assert cells(pad(text, width, right=True)) == width


@given(st.lists(st.from_regex(r"[a-z\u6f22]{1,8}", fullmatch=True)), st.integers(20, 60))
def test_wrapped_text_loses_no_word(words: list[str], width: int) -> None:
    """Lines fit, and no word that fits a line is cut."""
    lines = list(wrapped(" ".join(words), width))

    assert all(cells(line) <= width for line in lines)
    assert " ".join(lines).split() == words


@given(st.text(max_size=50), st.sampled_from(["ascii", "latin-1", "utf-8", None]))
def test_encodable_text_can_be_encoded(text: str, encoding: str | None) -> None:
    """Surrogates too; encodable text stays as it is."""
    found = encodable(text, encoding)

    found.encode(encoding or "ascii")
    assert len(found) == len(text)
    if text.isascii():
        assert found == text


def test_paint() -> None:
    """Colour surrounds the text, and is left out where it is not wanted."""
    assert Screen(colour=True).painted("x", "bad") == "\x1b[31mx\x1b[0m"
    assert Screen(colour=True).painted("x", "") == "x"
    assert Screen().painted("x", "bad") == "x"
