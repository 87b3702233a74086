# SPDX-License-Identifier: Apache-2.0
"""Adds to the description of a panel which of its metrics need ``--metrics.level=full``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from dashboards.model import Dashboard, Panel
from exporter.exposition.catalogue import CATALOGUE

SELECTOR = re.compile(r"\b((?:gpu|roofline_exporter)_[a-z0-9_]+)\{([^}]*)\}")
MATCHER = re.compile(r'([a-z_]+)=~?"([^"]*)"')


def full_only(expression: str) -> Iterator[str]:
    """Yield the metrics of PromQL that are not at level core, or not with some label value."""
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


def described(page: Dashboard) -> Dashboard:
    """Return the page, with a sentence in each panel that needs level full."""
    rows = tuple(
        dataclasses.replace(row, panels=tuple(map(_described, row.panels))) for row in page.rows
    )
    return dataclasses.replace(page, top=tuple(map(_described, page.top)), rows=rows)


def _described(panel: Panel) -> Panel:
    expressions = " ".join(query.expression for query in panel.queries)
    needed = sorted(set(full_only(expressions)))
    if not needed:
        return panel
    sentence = f"Needs --metrics.level=full, the default, for {', '.join(needed)}."
    return dataclasses.replace(panel, description=f"{panel.description}\n\n{sentence}")
