# SPDX-License-Identifier: Apache-2.0
"""Adds to the description of a panel over which window its rates are taken."""

from __future__ import annotations

import dataclasses

from dashboards.model import Dashboard, Panel
from dashboards.promql import WINDOW

OF_A_POINT = (
    "Each point is a mean over four scrapes (one minute by default), or over a step of the chart "
    "where that is longer."
)
OF_NOW = (
    "Means over the last four scrapes (one minute by default), or over more of a long time range; "
    "the exporter's own page takes the last ten seconds."
)


def described(page: Dashboard) -> Dashboard:
    """Return the page, with a sentence about the window in each panel that shows a rate."""
    rows = tuple(
        dataclasses.replace(row, panels=tuple(map(_described, row.panels))) for row in page.rows
    )
    return dataclasses.replace(page, top=tuple(map(_described, page.top)), rows=rows)


def _described(panel: Panel) -> Panel:
    rates = [query for query in panel.queries if f"[{WINDOW}]" in _outside(query.expression)]
    if not rates:
        return panel
    sentence = OF_NOW if all(query.instant for query in rates) else OF_A_POINT
    return dataclasses.replace(panel, description=f"{panel.description}\n\n{sentence}")


def _outside(expression: str) -> str:
    """Return an expression without what is added up over the whole range."""
    return expression if "$__range:" not in expression else ""
