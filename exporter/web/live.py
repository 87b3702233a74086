# SPDX-License-Identifier: Apache-2.0
"""The live view of the node: what page and stream show, as plain JSON data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from exporter.snapshot import Rank, Snapshot
from exporter.web.numbers import cut, known, moment, rounded
from exporter.web.problem import problem_view
from exporter.web.roofs import roofs
from exporter.web.rows import Row, rank_key, rows
from exporter.web.standing import Told, headline, totals

NodeView = dict[str, Any]
"""sequence, timestamp, interval, simulated, problem, headline, totals, roofs, rows; what is not
known is absent."""

REAL = "nvml"


def node_view(
    snapshot: Snapshot | None,
    *,
    sequence: int,
    interval_seconds: float,
    earlier_ranks: Iterable[Rank] = (),
    tried: Sequence[str] = (),
) -> NodeView:
    """Return the view of one snapshot; before the first it says that there is none yet.

    Args:
        snapshot: what to show.
        sequence: which publication it is, counted from 1.
        interval_seconds: how often one is published.
        earlier_ranks: the ranks some seconds ago, for what they did since.
        tried: where GPUs were looked for, for when there are none.
    """
    if snapshot is None:
        return {
            "sequence": sequence,
            "interval": interval_seconds,
            "headline": "The GPUs are read for the first time",
            "totals": "No reading yet",
            "roofs": {},
            "rows": {},
        }
    found: dict[str, Row] = {}
    told: list[Told] = []
    earlier = {rank_key(rank): rank for rank in earlier_ranks}
    for key, row, tells in rows(snapshot, earlier):
        found[key] = row
        if tells is not None:
            told.append(tells)
    problem = problem_view(snapshot, tried)
    return {
        "sequence": sequence,
        **known(
            timestamp=moment(snapshot.timestamp_seconds),
            interval=rounded(interval_seconds),
            simulated=_simulated(snapshot),
            problem=problem,
        ),
        "headline": headline(told) if told else "No GPU can be read",
        "totals": totals(len(snapshot.gpus), told) if told else "No GPUs",
        "roofs": roofs(snapshot),
        "rows": found,
    }


def _simulated(snapshot: Snapshot) -> str | None:
    """Return where data that is not of real GPUs comes from: simulate, replay."""
    sources = {gpu.device.source for gpu in snapshot.gpus} - {REAL}
    return " and ".join(cut(source) for source in sorted(sources)) or None
