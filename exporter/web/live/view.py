# SPDX-License-Identifier: Apache-2.0
"""The live view of the node: what page and stream show, as plain JSON data."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from exporter.model.snapshot import Snapshot
from exporter.web.facts import notice_of
from exporter.web.live.roofs import roofs
from exporter.web.live.rounding import known, moment, rounded
from exporter.web.live.rows import COLUMNS, Row, rows
from exporter.web.store import Store
from exporter.web.wording.diagnosis import address, not_known, sentence
from exporter.web.wording.facts import Facts
from exporter.web.wording.measuring import sentences
from exporter.web.wording.numbers import LONG, capitalised, cut
from exporter.web.wording.phrases import title, window
from exporter.web.wording.recorded import ENDED, recording_ended
from exporter.web.wording.state import UNKNOWN
from exporter.web.wording.summary import Headline, advice_address, headline, totals
from exporter.web.wording.whose import unread_words

NodeView = dict[str, Any]
"""sequence, timestamp, interval, notice, problem, headline, announced, advice, totals, measure,
about, cause, means, columns, roofs, rows; unknown members are absent. `notice` says that data is
simulated or recorded, `problem` why no GPU is up. `announced` is the headline without numbers
that change every second, `about` the row that it names, `cause` why that GPU is slow and what to
change, `advice` the page in the documentation; `means` says of how many seconds the rows are;
`measure` says which GPUs could be measured better and which scheduler cannot be read."""


def node_view(snapshot: Snapshot | None, *, sequence: int, interval_seconds: float) -> NodeView:
    """Return the view of one snapshot, or a placeholder before the first."""
    if snapshot is None:
        first = "The GPUs are read for the first time"
        return {
            "sequence": sequence,
            "interval": interval_seconds,
            "headline": first,
            "announced": first,
            "advice": advice_address(UNKNOWN),
            "totals": "No reading yet",
            "columns": list(COLUMNS),
            "roofs": {},
            "rows": {},
        }
    found: dict[str, Row] = {}
    facts: list[Facts] = []
    for key, row, known_of_it in rows(snapshot):
        found[key] = row
        facts.append(known_of_it)
    problem, most = snapshot.problem, headline(facts)
    ended = recording_ended(problem)
    if ended is not None:
        said = capitalised(ended)
        most = Headline(said, said, ENDED)
    about, advice = most.about, advice_address(most.state)
    if about is not None and about.diagnoses:
        advice = address(about.diagnoses[0].cause)
    named = (key for key, each in zip(found, facts, strict=True) if each is about)
    unread = (f"{said}." for said in unread_words(snapshot.sources) if ended is None)
    return {
        "sequence": sequence,
        **known(
            timestamp=moment(snapshot.timestamp_seconds),
            interval=rounded(interval_seconds),
            notice=notice_of(snapshot),
            problem=None if problem is None else cut(" ".join(problem.split()), LONG),
        ),
        "headline": most.text,
        "announced": most.brief,
        "advice": advice,
        "totals": totals(facts),
        **known(
            about=next(named, None),
            cause=None if about is None else _cause(about),
            means=f"means {window(facts)}",
            measure="\n".join([*sentences(facts, title), *unread]) or None,
        ),
        "columns": list(COLUMNS),
        "roofs": roofs(snapshot),
        "rows": found,
    }


def _cause(facts: Facts) -> str | None:
    """Return why a GPU is slow and what to change, or why that cannot be told."""
    if facts.diagnoses:
        return sentence(facts.diagnoses[0])
    unknown = not_known(facts.missing_evidence)
    return f"{capitalised(unknown)}." if unknown else None


class Views:
    """The view of the latest snapshot, made on demand and cached; thread-safe."""

    def __init__(
        self,
        store: Store,
        poll_interval_seconds: Callable[[], float],
        tried: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Connect the store; `tried` returns the places where GPUs were searched."""
        self.store = store
        self.tried = tried
        self._poll_interval_seconds = poll_interval_seconds
        self._lock = threading.Lock()
        self._latest: NodeView | None = None

    def latest(self) -> NodeView:
        """Return the view of the latest snapshot; callers must not change it."""
        with self._lock:
            published = self.store.published()
            sequence = 0 if published is None else published.sequence
            view = self._latest
            if view is None or view["sequence"] != sequence:
                view = self._latest = node_view(
                    None if published is None else published.snapshot,
                    sequence=sequence,
                    interval_seconds=self._poll_interval_seconds(),
                )
            return view
