# SPDX-License-Identifier: Apache-2.0
"""Ranks of a training job to derive from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from exporter.model.snapshot import Rank
from exporter.model.training import TrainingTotals

NOW = 1000.0
"""The Unix time of their last report."""


def rank_of(number: int = 0, **changes: Any) -> Rank:
    """A verified rank that lives, does not wait and reported just now."""
    rank = Rank(
        job="job",
        rank=number,
        gpu_uuid="GPU-0",
        gpu_instance=None,
        totals=TrainingTotals(),
        processes=1,
        run_seconds=60.0,
        last_report_timestamp_seconds=NOW,
        verified=True,
    )
    return replace(rank, **changes)
