# SPDX-License-Identifier: Apache-2.0
"""No total falls or jumps when the source of a GPU's counters changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from exporter.model.snapshot import ShareTotals
from exporter.publisher.shared_time import FIELDS
from exporter.sources.dcgm.scrape import NothingThere
from tests.clocks import ManualClock
from tests.sources.dcgm.nodes import PageNode
from tests.sources.dcgm.pages import FULL, STOCK

PAGES: Mapping[str, dict[int, float]] = {
    "full": FULL,
    "stock": STOCK,
    "dead": dict.fromkeys(FULL, 0.0),
    "blank": dict.fromkeys(FULL, 2.0**47),
    "bare": {},
}
NO_TOTALS = (
    "since_timestamp_seconds",
    "idle_for_seconds",
    "last_busy_timestamp_seconds",
    "seen_busy_timestamp_seconds",
)
ROUND_SECONDS = 4.6
"""The most that one round may add: what passed since the last activity, for up to 3.5 rounds."""


class Node(PageNode):
    """A page that is renewed or fails when a test says so, a round a second."""

    failing = False
    renewals = 0.0

    def renewal(self) -> float:
        return self.renewals

    def get(self) -> str:
        if self.failing:
            raise NothingThere("connection refused")
        return super().get()


@dataclasses.dataclass(frozen=True)
class Times:
    """What holds for some rounds."""

    rounds: int
    page: str
    renewed: bool
    failing: bool
    preferred: str
    working: bool


TIMES = st.builds(
    Times,
    rounds=st.integers(1, 12),
    page=st.sampled_from(list(PAGES)),
    renewed=st.booleans(),
    failing=st.booleans(),
    preferred=st.sampled_from(["absent", "absent", "silent", "answers"]),
    working=st.booleans(),
)


def flat(totals: ShareTotals) -> dict[tuple[str, str | None], float]:
    """Every number of the totals that only grows, by field and label."""
    found: dict[tuple[str, str | None], float] = {}
    for field in dataclasses.fields(totals):
        value: Any = getattr(totals, field.name)
        if value is None or field.name in NO_TOTALS:
            continue
        labelled = value if isinstance(value, dict) else {None: value}
        found |= {(field.name, label): number for label, number in labelled.items()}
    return found


@example(
    [
        Times(1, "full", renewed=False, failing=False, preferred="absent", working=True),
        Times(1, "full", renewed=False, failing=True, preferred="answers", working=True),
        Times(2, "full", renewed=False, failing=True, preferred="absent", working=True),
        Times(1, "full", renewed=False, failing=False, preferred="answers", working=True),
    ]
)
@given(st.lists(TIMES, max_size=12))
def test_totals_neither_fall_nor_jump(times: list[Times]) -> None:
    """Whatever the page and a preferred source do, and in whatever order: time is counted once.
    What is no longer read is left out, and goes on from where it was."""
    node = Node(ManualClock())
    found = [flat(node.share().totals)]
    for part in times:
        node.fields, node.failing, node.working = PAGES[part.page], part.failing, part.working
        node.preferred.there = part.preferred != "absent"
        node.preferred.answers = part.preferred == "answers"
        for _ in range(part.rounds):
            node.renewals += part.renewed
            found.append(flat(node.share().totals))

    earlier: dict[tuple[str, str | None], float] = {}
    for later in found:
        for key, after in later.items():
            before = earlier.get(key, 0.0)
            assert after - before >= -1e-6 * max(before, 1.0), key
            if key[0].endswith("_seconds"):
                assert after - before <= ROUND_SECONDS, key
        assert {name for name, _ in earlier.keys() - later.keys()} <= set(FIELDS)
        earlier |= later
    elapsed = len(found) + 1e-6
    limited = sum(value for (name, _), value in found[-1].items() if name == "limited_seconds")
    assert limited <= elapsed
    for key, value in found[-1].items():
        if key[0].endswith("_seconds"):
            assert value <= elapsed, key
