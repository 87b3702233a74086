# SPDX-License-Identifier: Apache-2.0
"""Notices about data that is not real, and links into the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.web.wording.recorded import notice
from exporter.web.wording.state import TONES, UNKNOWN
from exporter.web.wording.summary import DOCUMENTATION, advice_address

REPOSITORY = Path(__file__).parent.parent.parent.parent


def test_every_state_leads_to_what_the_documentation_says_of_it() -> None:
    """The page exists, and the section in it."""
    for state in (*TONES, UNKNOWN):
        page, _, section = (
            advice_address(state).removeprefix(f"{DOCUMENTATION}/blob/main/").partition("#")
        )
        text = (REPOSITORY / page).read_text("utf-8")
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        assert section in {"", *(heading.lower().replace(" ", "-") for heading in headings)}, state


SIMULATED = "Not real GPUs. This data is simulated"


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        (("nvml", "580.95.05"), None),
        (("simulate", "simulated"), f"{SIMULATED}."),
        (("replay", "simulated"), f"{SIMULATED}; it was recorded, and is played back."),
        (("x" * 300, None), f"Not real GPUs. This data comes from {'x' * 119}…."),
    ],
)
def test_data_that_is_not_of_now_is_marked(
    identity: tuple[str, str | None], said: str | None
) -> None:
    """One GPU whose readings are not real is enough; what was simulated stays so in a recording."""
    assert notice([("nvml", None), identity]) == said
