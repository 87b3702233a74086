# SPDX-License-Identifier: Apache-2.0
"""Every word about a GPU and about a node, of all that may be known.

The cases are in the golden file, by what is known; a new one needs only its facts, and
``UPDATE_GOLDEN=1`` writes what is said of it. A review reads the difference.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from exporter.model.snapshot import Holder
from exporter.model.workload import Workload
from exporter.web.wording import measuring, phrases, short
from exporter.web.wording.facts import Counting, Facts, Range, Saturation, XidSeen
from exporter.web.wording.state import TONES, UNKNOWN, state, tone
from exporter.web.wording.summary import headline, totals
from exporter.web.wording.whose import owner
from tests.web.golden import GOLDEN, check_json

LONG = (
    *("title", "name", "use", "saturation", "mfu", "roof", "data_stall", "stall_level", "memory"),
    *("power", "idle", "holder", "throttled", "down_reason"),
)
SHORT = (
    *("down", "saturation", "limiter", "data_stall", "memory", "power", "temperature"),
    *("idle", "held_idle", "holder"),
)


def facts_of(known: dict[str, Any]) -> Facts:
    """Facts from JSON, which has neither tuples nor classes."""
    made: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each for name, each in known.items()
    }
    if "saturation" in made:
        about = made["saturation"]
        made["saturation"] = Saturation(**{**about, "ratio": Range(*about["ratio"])})
    if "data_stall" in made:
        made["data_stall"] = Range(*made["data_stall"])
    if "holder" in made:
        about = made["holder"]
        name = about.get("workload")
        workload = None if name is None else Workload("container", container=name)
        made["holder"] = Holder(**{**about, "workload": workload})
    if "counting" in made:
        made["counting"] = Counting(**made["counting"])
    if "xids" in made:
        made["xids"] = tuple(XidSeen(*each) for each in made["xids"])
    assert made.keys() <= {each.name for each in fields(Facts)}
    return Facts(**made)


def of_gpu(facts: Facts) -> dict[str, Any]:
    word = state(facts)
    said = {name: getattr(phrases, name)(facts) for name in LONG}
    said |= {f"{name} in short": getattr(short, name)(facts) for name in SHORT}
    said |= {"limiter": phrases.limiter(facts, word), "owner": owner(facts)}
    said |= {
        "state": word,
        "tone": tone(word),
        "xids": phrases.notes(facts),
        "measure": measuring.sentence(facts),
    }
    return {name: words for name, words in said.items() if words}


def of_node(found: list[Facts]) -> dict[str, str]:
    said = headline(found)
    return {"headline": said.text, "announced": said.brief, "totals": totals(found)}


@pytest.mark.usefixtures("installed_by_pip")
def test_golden() -> None:
    """State, phrases, columns of the terminal, owner, how it is measured, headline and totals."""
    cases = json.loads((GOLDEN / "words.json").read_text(encoding="utf-8"))
    for case in cases:
        found = [facts_of(known) for known in case["known"]]
        case["node"] = of_node(found)
        case["gpus"] = [of_gpu(facts) for facts in found]
    check_json(cases, "words.json")
    assert {each["state"] for case in cases for each in case["gpus"]} >= TONES.keys() | {UNKNOWN}
