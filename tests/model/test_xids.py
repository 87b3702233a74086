# SPDX-License-Identifier: Apache-2.0
"""The one table of Xids, and the page that shows it."""

from __future__ import annotations

import re
from pathlib import Path

from exporter.model.xids import ALERTING, XIDS, describe

PAGE = Path(__file__).parent.parent.parent / "docs" / "health.md"


def test_the_table_is_in_order_and_each_code_stands_once() -> None:
    """A row that another one hides would never be seen."""
    assert list(XIDS) == sorted(XIDS)
    assert all(code == xid.code for code, xid in XIDS.items())


def test_alerts_are_made_of_hardware_faults() -> None:
    """What an application does to itself raises no alert."""
    assert {code for code in ALERTING if XIDS[code].tier == "critical"} == {
        *(48, 62, 64, 74, 79, 95, 119, 120, 140)
    }
    assert {code for code in ALERTING if XIDS[code].tier == "warning"} == {94}
    assert not {13, 31, 43, 45} & set(ALERTING)


def test_every_code_that_exists_at_zero_costs_a_series() -> None:
    """Ten for each GPU are what the budget of series has room for."""
    assert len(ALERTING) <= 10


def test_descriptions_are_one_plain_phrase() -> None:
    """They stand in log lines."""
    for xid in XIDS.values():
        for words in (xid.meaning, xid.advice):
            assert words
            assert words.isascii()
            assert not words.endswith(".")
            assert "\n" not in words


def test_an_unknown_xid_is_described_too() -> None:
    """New drivers bring new codes."""
    assert describe(79).startswith("the GPU has fallen off the bus; drain")
    assert describe(9999) == "see NVIDIA's Xid catalog"


def test_the_page_shows_the_table() -> None:
    """docs/health.md has exactly these rows."""
    rows = re.findall(r"^\| ([0-9]+) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    shown = {int(code): cells for code, cells in rows}
    expected = {
        code: " | ".join((xid.tier or "", xid.meaning, xid.advice)) for code, xid in XIDS.items()
    }
    assert shown == expected
    assert len(rows) == len(shown)
