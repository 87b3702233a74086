# SPDX-License-Identifier: Apache-2.0
"""Generates the tables of docs/metrics.md from the catalogue: ``make docs``."""

from __future__ import annotations

import sys
from pathlib import Path

from exporter.exposition.catalogue import SECTIONS
from exporter.exposition.family import Family
from exporter.exposition.labels import LABELS_OF, Label

BEGIN = "<!-- families: generated from the catalogue in exporter/exposition/ by `make docs` -->"
END = "<!-- /families -->"


def _label(label: Label) -> str:
    if label.values:
        rest = f" (at level core without {', '.join(label.full_values)})"
        return f"`{label.name}`: {', '.join(label.values)}{rest if label.full_values else ''}"
    only = f"; at level core only {', '.join(label.core_values)}" if label.core_values else ""
    return f"`{label.name}`" + (f" ({label.meaning}{only})" if label.meaning else "")


def _row(family: Family) -> str:
    device = ", ".join(f"`{name}`" for name in LABELS_OF[family.scope])
    labels = "; ".join(part for part in (device, *map(_label, family.labels)) if part)
    cells = (
        f"`{family.name}`",
        family.kind,
        family.level,
        labels,
        family.meaning,
        f"{family.origin}.",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _contents() -> str:
    links = (f"- [{section}](#{section.lower().replace(' ', '-')})\n" for section in SECTIONS)
    return "\nOn this page:\n\n" + "".join(links)


def updated(document: str) -> str:
    """Return the document with the tables between its markers made anew."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    parts = [before, BEGIN, "\n", _contents()]
    for section, families in SECTIONS.items():
        parts.append(f"\n## {section}\n\n| metric | type | level | labels | meaning | source |\n")
        parts.append("|---|---|---|---|---|---|\n")
        parts.extend(f"{_row(family)}\n" for family in families)
    return "".join((*parts, "\n", END, after))


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
