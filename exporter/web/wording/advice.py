# SPDX-License-Identifier: Apache-2.0
"""Where the documentation says what a state means and what to change."""

from __future__ import annotations

from exporter.web.wording.recorded import ENDED

DOCUMENTATION = "https://github.com/roofline-exporter/roofline-exporter"
_DOCS = f"{DOCUMENTATION}/blob/main/docs"

PAGES = {
    "lost": "live-page.md#lost",
    "starved": "stalls.md#what-to-change",
    "held idle": "live-page.md#held-idle",
    "unopened": "live-page.md#unopened",
    "underused": "live-page.md#underused",
    "clock-throttled": "live-page.md#clock-throttled",
    "near its roof": "live-page.md#near-its-roof",
    "often idle": "live-page.md#often-idle",
    ENDED: "recordings.md",
}
"""By state, a page below docs and its section."""
OTHERWISE = "live-page.md#the-node"


def advice_address(state: str) -> str:
    """Return the address of what the documentation says of a state."""
    return f"{_DOCS}/{PAGES.get(state, OTHERWISE)}"
