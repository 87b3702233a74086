# SPDX-License-Identifier: Apache-2.0
"""The one table of Xids, and the page that shows it."""

from __future__ import annotations

import re
from pathlib import Path

from exporter.model.xids import ALERTING, COUNTED_FROM_START, XIDS, describe

PAGE = Path(__file__).parent.parent.parent / "docs" / "health.md"


def test_the_table_is_in_order_and_each_code_stands_once() -> None:
    """A row that another one hides would never be seen."""
    assert list(XIDS) == sorted(XIDS)
    assert all(code == xid.code for code, xid in XIDS.items())


def test_alerts_are_made_of_hardware_faults() -> None:
    """What an application does to itself raises no alert."""
    assert {code for code in ALERTING if XIDS[code].tier == "critical"} == {
        *(48, 62, 64, 74, 79, 95, 119, 120, 140, 158, 167, 169, 173, 175)
    }
    assert {code for code in ALERTING if XIDS[code].tier == "warning"} == {94, 157}
    assert not {13, 31, 43, 45, 154, 155, 174} & set(ALERTING)


def test_every_code_that_exists_at_zero_costs_a_series() -> None:
    """Ten for each GPU are what the budget of series has room for: the common ones."""
    assert set(COUNTED_FROM_START) == {48, 62, 64, 74, 79, 94, 95, 119, 120, 140}
    assert set(COUNTED_FROM_START) <= set(ALERTING)


def test_the_codes_of_newer_drivers_are_known_as_far_as_they_are_documented() -> None:
    """NVIDIA's catalog ends at 172, and the driver's own header at 176."""
    assert {code for code in XIDS if code >= 150} == {150, *range(154, 178)}
    assert "retired" in XIDS[156].meaning
    assert "reset" in XIDS[156].advice
    assert "no spare" in XIDS[157].meaning
    assert all("power smoothing" in XIDS[code].meaning for code in range(162, 166))
    assert "Xid 48" in XIDS[171].advice
    assert describe(178) == "see NVIDIA's Xid catalog"


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
