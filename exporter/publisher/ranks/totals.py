# SPDX-License-Identifier: Apache-2.0
"""What several processes of one rank did together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import add
from typing import Any

from exporter.model.training import TRAINING_PHASES, TrainingTotals
from exporter.publisher.sums import merged

_FIELDS = tuple(field.name for field in fields(TrainingTotals))


def total_of(one: TrainingTotals, other: TrainingTotals) -> TrainingTotals:
    """Return what two processes did together."""
    return _each(one, other, add)


def at_least(totals: TrainingTotals, floor: TrainingTotals) -> TrainingTotals:
    """Return totals that are nowhere below those of `floor`.

    A sum of floats depends on the order of its parts in the last digit, and a counter that falls
    by that much would look like one that was reset.
    """
    return _each(floor, totals, max)


def _each(
    one: TrainingTotals, other: TrainingTotals, of: Callable[[float, float], float]
) -> TrainingTotals:
    """Return `of` each two totals; those by phase come in the order of the table of phases."""
    return TrainingTotals(
        **{name: _ordered(merged(getattr(one, name), getattr(other, name), of)) for name in _FIELDS}
    )


def _ordered(total: Any) -> Any:
    if not isinstance(total, dict):
        return total
    return {phase: total[phase] for phase in TRAINING_PHASES if phase in total}
