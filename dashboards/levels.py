# SPDX-License-Identifier: Apache-2.0
"""Says in a panel's description what of its metrics the exporter serves only at level full."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from dashboards.model import Dashboard, Panel
from exporter.exposition.catalogue import CATALOGUE

SELECTOR = re.compile(r"\b((?:gpu|roofline_exporter)_[a-z0-9_]+)\{([^}]*)\}")
MATCHER = re.compile(r'([a-z_]+)=~?"([^"]*)"')


def full_only(expression: str) -> Iterator[str]:
    """Yield what in PromQL is not at level core: metrics, and metrics with a value of a label."""
    for name, matchers in SELECTOR.findall(expression):
        family = CATALOGUE[name]
        if family.level != "core":
            yield name
            continue
        restricted = {label.name: label.full_values for label in family.labels}
        for label, wanted in MATCHER.findall(matchers):
            kept_back = restricted.get(label, ())
            # What a reader chooses may be any of the values.
            found = kept_back if "$" in wanted else set(kept_back) & set(wanted.split("|"))
            yield from (f"{name} with {label} {value}" for value in found)


def said(page: Dashboard) -> Dashboard:
    """Return the page with that sentence where it is due."""
    rows = tuple(
        dataclasses.replace(row, panels=tuple(map(_said, row.panels))) for row in page.rows
    )
    return dataclasses.replace(page, top=tuple(map(_said, page.top)), rows=rows)


def _said(panel: Panel) -> Panel:
    expressions = " ".join(query.expression for query in panel.queries)
    needed = sorted(set(full_only(expressions)))
    if not needed:
        return panel
    sentence = f"Needs --metrics.level=full, the default, for {', '.join(needed)}."
    return dataclasses.replace(panel, description=f"{panel.description}\n\n{sentence}")
