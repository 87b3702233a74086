# SPDX-License-Identifier: Apache-2.0
"""The lines of text that ``status`` prints."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.cli.status.columns import COLUMNS
from exporter.cli.status.view import View
from exporter.cli.terminal.screen import Screen, cells, safe, wrapped
from exporter.cli.terminal.table import laid_out
from exporter.web.wording import short
from exporter.web.wording.facts import Facts


def _tone(facts: Facts) -> str:
    return "faint" if facts.down_reason is not None else ""


def rendered(view: View, screen: Screen) -> Iterator[str]:
    """Yield the lines: totals, notices, the table, and what could be measured better.

    None is wider than the screen.
    """
    title = " · ".join(filter(None, (view.title, view.window)))
    driver = f" · driver {safe(view.driver)}" if view.driver else ""
    if cells(title + driver) > screen.columns:
        driver = ""
    *above, last = wrapped(title, screen.columns)
    yield from (screen.painted(line, "strong") for line in above)
    yield screen.painted(last, "strong") + driver
    for notice in view.notices:
        for line in wrapped(notice, screen.columns):
            yield screen.painted(line, "warning")
    if view.gpus:
        yield from laid_out(COLUMNS, view.gpus, screen, tone=_tone, across=short.down)
    for sentence in view.measure:
        for line in wrapped(sentence, screen.columns):
            yield screen.painted(line, "faint")
