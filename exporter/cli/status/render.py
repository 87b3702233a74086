# SPDX-License-Identifier: Apache-2.0
"""The lines of text that ``status`` prints."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.cli.status.answer import Line, View
from exporter.cli.status.columns import COLUMNS
from exporter.cli.terminal.screen import Screen, cells, wrapped
from exporter.cli.terminal.table import laid_out


def _tone(line: Line) -> str:
    return "faint" if line.down is not None else ""


def _across(line: Line) -> str | None:
    return None if line.down is None else f"down: {line.down}"


def rendered(view: View, screen: Screen) -> Iterator[str]:
    """Yield the lines: totals, notices, the table; none is wider than the screen."""
    title, driver = view.title, f" · driver {view.driver}" if view.driver else ""
    if cells(title + driver) > screen.columns:
        driver = ""
    *above, last = wrapped(title, screen.columns)
    yield from (screen.painted(line, "strong") for line in above)
    yield screen.painted(last, "strong") + driver
    for notice in view.notices:
        for line in wrapped(notice, screen.columns):
            yield screen.painted(line, "warning")
    if view.lines:
        yield from laid_out(COLUMNS, view.lines, screen, tone=_tone, across=_across)
