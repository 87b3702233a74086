# SPDX-License-Identifier: Apache-2.0
"""The live view of the node: what page and stream show, as plain JSON data."""

from __future__ import annotations

from typing import Any

from exporter.model.snapshot import Snapshot
from exporter.web.live.roofs import roofs
from exporter.web.live.rounding import known, moment, rounded
from exporter.web.live.row_words import COLUMNS, Row
from exporter.web.live.rows import rows
from exporter.web.wording.facts import Facts
from exporter.web.wording.numbers import LONG, cut
from exporter.web.wording.summary import headline, totals, unreal

NodeView = dict[str, Any]
"""sequence, timestamp, interval, notice, problem, headline, totals, columns, roofs, rows; what is
not known is absent. `notice` says that these are no real GPUs, `problem` why there are none."""


def node_view(
    snapshot: Snapshot | None,
    *,
    sequence: int,
    interval_seconds: float,
) -> NodeView:
    """Return the view of one snapshot; before the first it says that there is none yet.

    Args:
        snapshot: what to show.
        sequence: which publication it is, counted from 1.
        interval_seconds: how often one is published.
    """
    if snapshot is None:
        return {
            "sequence": sequence,
            "interval": interval_seconds,
            "headline": "The GPUs are read for the first time",
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
    problem = snapshot.problem
    return {
        "sequence": sequence,
        **known(
            timestamp=moment(snapshot.timestamp_seconds),
            interval=rounded(interval_seconds),
            notice=unreal({gpu.device.source for gpu in snapshot.gpus}),
            problem=None if problem is None else cut(" ".join(problem.split()), LONG),
        ),
        "headline": headline(facts),
        "totals": totals(facts),
        "columns": list(COLUMNS),
        "roofs": roofs(snapshot),
        "rows": found,
    }
