# SPDX-License-Identifier: Apache-2.0
"""What docs/dcgm.md tells users to write is what makes a saturation complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.derive.saturation import measured
from exporter.model.dcgm import FIELDS, PREFIX
from exporter.sources.dcgm.page import BY_NAME, parse
from tests.sources.dcgm.pages import COMPLETING, STOCK, UUID, Rows, page

TEXT = (Path(__file__).parents[3] / "docs" / "dcgm.md").read_text(encoding="utf-8")
LISTS = re.findall(r"^```\n(DCGM.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("generation", [0, 1])
def test_eight_lines_make_the_stock_list_complete(generation: int) -> None:
    """In both generations of names, in the form that dcgm-exporter reads."""
    lines = LISTS[generation].splitlines()
    names = [re.fullmatch(r"(DCGM_FI_PROF_\w+), +gauge, [^,]+\.", line) for line in lines]
    fields = [BY_NAME[name[1]] for name in names if name]

    assert sorted(fields) == list(COMPLETING)
    assert len(fields) == len(lines) == 8
    assert [name[1] for name in names if name] == [
        PREFIX + (field.current if generation else field.legacy) for field in fields
    ]
    stock = parse(page(Rows(STOCK), current=bool(generation)))[UUID].activities[None]
    more = STOCK | {field.number: 0.1 for field in fields}
    full = parse(page(Rows(more), current=bool(generation)))[UUID].activities[None]
    assert not measured(stock, (8, 0)).complete
    assert measured(full, (8, 0)).complete


def test_the_table_has_every_field() -> None:
    """By number, with both names and whether it is in dcgm-exporter's own list."""
    rows = re.findall(r"^\| (\d{4}) \| `(\w+)` \| (.+?) \| .* \| (yes)? ?\|$", TEXT, re.MULTILINE)

    assert rows == [
        (
            str(field.number),
            field.legacy,
            "the same" if field.legacy == field.current else f"`{field.current}`",
            "yes" if field.number in STOCK else "",
        )
        for field in FIELDS
    ]
