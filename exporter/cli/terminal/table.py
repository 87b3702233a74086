# SPDX-License-Identifier: Apache-2.0
"""Lay out a table for a given width: drop the least important columns, never wrap a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from exporter.cli.terminal.screen import Screen, cells, clip, pad, safe

T = TypeVar("T")

GAP = "  "
LEAD = 2


@dataclass(frozen=True, slots=True)
class Cell:
    """One value as it is shown."""

    text: str = ""
    tone: str = ""


UNKNOWN = Cell("-", "faint")
NOTHING = Cell()


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column: its cells, and its width."""

    header: str
    cell: Callable[[T], Cell]
    rank: int
    """Columns of higher rank are dropped first if the line is too narrow."""
    least: int = 0
    """Minimum width, so that columns do not move as values change; a column that `shrinks` is
    dropped below this width."""
    most: int = 24
    right: bool = False
    shrinks: bool = False
    whole_before: int | None = None
    """A column that shrinks gets its full width before columns of this rank or higher are shown."""


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
) -> Iterator[str]:
    """Yield the header and one line a row, made harmless and none wider than the screen.

    Columns without a value in any row are dropped. `tone` returns the tone of a row, `across` the
    text that replaces all but its first LEAD columns, or None.
    """
    fitted = _fit(columns, rows, screen.columns)
    header = GAP.join(
        pad(each.column.header, each.width, right=each.column.right) for each in fitted
    )
    yield screen.painted(header.rstrip(), "strong")
    leading = [each for each in fitted if each.column in columns[:LEAD]]
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
    # Paint the text only, not the padding.
    return padded.replace(text, screen.painted(text, row_tone or cell.tone), 1) if text else padded


def _fit(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> list[_Fitted[T]]:
    """Return the columns that fit, by rank, each with its width."""
    every = []
    for column in columns:
        found = map(column.cell, rows)
        every.append(_Fitted(column, [replace(each, text=safe(each.text)) for each in found]))
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
    """Widen a column to its widest text as far as there is room; return by how much."""
    more = max(0, min(fitted.natural - fitted.width, left))
    fitted.width += more
    return more
