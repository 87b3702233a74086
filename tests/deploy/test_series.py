# SPDX-License-Identifier: Apache-2.0
"""How many series docs/deploy.md promises."""

from __future__ import annotations

from tests.deploy.helm import ROOT
from tests.deploy.series import PHRASE, most_series, written


def test_the_guide_has_as_many_series_as_a_node() -> None:
    """`make docs` writes them; both levels are named once, and *core* is about half."""
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    assert [found[1] for found in PHRASE.finditer(page)] == ["full", "core"]
    assert written(page) == page


def test_core_is_the_smaller_level() -> None:
    """Else a default of *core* would save nothing."""
    most = most_series()
    assert most["core"] < 0.6 * most["full"]
