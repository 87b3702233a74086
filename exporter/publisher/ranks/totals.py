# SPDX-License-Identifier: Apache-2.0
"""What several processes of one rank did together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import add

from exporter.model.training import TrainingTotals
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
    return TrainingTotals(
        **{name: merged(getattr(one, name), getattr(other, name), of) for name in _FIELDS}
    )
