# SPDX-License-Identifier: Apache-2.0
"""Lay out a table for a given width: drop the least important columns, wrap no line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from exporter.cli.terminal.screen import Screen, cells, clip, pad, safe

T = TypeVar("T")

GAP = "  "


@dataclass(frozen=True, slots=True)
class Cell:
    """One value as it is shown."""

    text: str = ""
    tone: str = ""


UNKNOWN = Cell("-", "faint")
NOTHING = Cell()


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column: what is in it, and what it may take."""

    header: str
    cell: Callable[[T], Cell]
    rank: int
    """1 is the last to go when the line is too narrow."""
    least: int = 0
    """Width that is always kept free for it, so that columns do not jump as values change; of one
    that `shrinks`, the width below which it goes."""
    most: int = 24
    right: bool = False
    shrinks: bool = False
    whole_before: int | None = None
    """A column that shrinks is shown whole before one of this rank or above takes any room."""


@dataclass(slots=True)
class _Fitted(Generic[T]):
    column: Column[T]
    cells: list[Cell]
    width: int = 0

    @property
    def is_empty(self) -> bool:
        return all(cell in (NOTHING, UNKNOWN) for cell in self.cells)

    @property
    def natural(self) -> int:
        column = self.column
        widest = max(cells(text) for text in (column.header, *(each.text for each in self.cells)))
        return min(column.most, widest if column.shrinks else max(widest, column.least))

    @property
    def needed(self) -> int:
        return min(self.natural, self.column.least) if self.column.shrinks else self.natural


def laid_out(
    columns: Sequence[Column[T]],
    rows: Sequence[T],
    screen: Screen,
    *,
    tone: Callable[[T], str] = lambda row: "",
    across: Callable[[T], str | None] = lambda row: None,
    lead: int = 2,
) -> Iterator[str]:
    """Yield the header and one line a row, made harmless and none wider than the screen.

    `columns` stand in the order of the line; those with nothing in any row are left out.

    Args:
        columns: what a row may show.
        rows: what is shown.
        screen: its width and whether it has colours.
        tone: gives the tone of a whole row.
        across: gives the text that replaces all but the first `lead` columns, or None.
        lead: how many columns that leaves as they are.
    """
    fitted = _fit(columns, rows, screen.columns)
    header = GAP.join(
        pad(each.column.header, each.width, right=each.column.right) for each in fitted
    )
    yield screen.painted(header.rstrip(), "strong")
    leading = [each for each in fitted if each.column in columns[:lead]]
    for number, row in enumerate(rows):
        text = across(row)
        shown = fitted if text is None else leading
        row_tone = tone(row)
        parts = [_cell(each, each.cells[number], screen, row_tone) for each in shown]
        if text is not None:
            rest = screen.columns - sum(each.width + len(GAP) for each in leading)
            parts.append(screen.painted(clip(safe(text), rest), row_tone))
        yield GAP.join(parts).rstrip()


def _cell(fitted: _Fitted[T], cell: Cell, screen: Screen, row_tone: str) -> str:
    padded = pad(cell.text, fitted.width, right=fitted.column.right)
    text = padded.strip()
    # Only the text is painted, not the space around it.
    return padded.replace(text, screen.painted(text, row_tone or cell.tone), 1) if text else padded


def _harmless(cell: Cell) -> Cell:
    return replace(cell, text=safe(cell.text))


def _fit(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> list[_Fitted[T]]:
    """Return the columns that fit, by rank, each with its width."""
    every = [_Fitted(column, [_harmless(column.cell(row)) for row in rows]) for column in columns]
    kept: list[_Fitted[T]] = []
    left = width + len(GAP)
    for fitted in sorted(every, key=lambda each: each.column.rank):
        if kept and rows and fitted.is_empty:
            continue
        for each in kept:
            if each.column.whole_before is not None and fitted.column.rank >= (
                each.column.whole_before
            ):
                left -= _grow(each, left)
        if kept and fitted.needed + len(GAP) > left:
            break
        fitted.width = min(fitted.needed, width)
        kept.append(fitted)
        left -= fitted.width + len(GAP)
    for fitted in kept:
        left -= _grow(fitted, left)
    return [fitted for fitted in every if fitted.width]


def _grow(fitted: _Fitted[T], left: int) -> int:
    """Make a column as wide as its widest text, if there is room; return what that took."""
    more = max(0, min(fitted.natural - fitted.width, left))
    fitted.width += more
    return more
