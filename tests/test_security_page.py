# SPDX-License-Identifier: Apache-2.0
"""docs/security.md says of all that is served whether it identifies somebody or something."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from exporter.exposition.catalogue import CATALOGUE
from exporter.web.api import models
from exporter.web.api.models.json import Json, json_name
from tests.rows import label_names
from tests.web.api import schema

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAME = re.compile(r"`([a-z][a-z0-9_]*)`")


def _section(heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def _rows(text: str) -> list[list[str]]:
    """The cells of the rows of its tables, without headings."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [cells for cells in rows if not set(cells[0]) <= {"-"}]


def _identifying(column: int) -> set[str]:
    rows = _rows(_section("What identifies somebody or something"))
    assert [cell.strip() for cell in rows[0]][1:3] == ["Labels", "Fields"]
    return {name for cells in rows[1:] for name in NAME.findall(cells[column])} - set(CATALOGUE)


def _harmless(heading: str) -> set[str]:
    (table,) = (
        part
        for part in _section("What identifies nothing").split("\n\n")
        if part.startswith(f"| {heading} |")
    )
    return {name for cells in _rows(table)[1:] for name in NAME.findall(cells[1])}


def _labels() -> set[str]:
    return {label for family in CATALOGUE.values() for label in label_names(family)}


def _fields() -> set[str]:
    modules = [
        importlib.import_module(f"{models.__name__}.{each.name}")
        for each in pkgutil.iter_modules(models.__path__)
    ]
    modules.append(schema)  # answers that the daemon writes without a model
    kinds: set[Any] = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Json) and kind is not Json
    }
    return {json_name(field.name) for kind in kinds for field in fields(kind)}


@pytest.mark.parametrize(
    ("served", "heading", "column"),
    [(_labels(), "Labels", 1), (_fields(), "Fields", 2)],
    ids=["labels", "fields"],
)
def test_everything_served_is_classified_once(served: set[str], heading: str, column: int) -> None:
    """A new label or field is on the page, on one side; nothing is there that is not served."""
    identifying, harmless = _identifying(column), _harmless(heading)
    assert len(served) > 50
    assert served - identifying - harmless == set(), "say in docs/security.md what they identify"
    assert identifying & harmless == set()
    assert (identifying | harmless) - served == set(), "no longer served"
