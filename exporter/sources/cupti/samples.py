# SPDX-License-Identifier: Apache-2.0
"""What a second's samples amount to: time-weighted means, and for how much of it they speak."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import NamedTuple

NANOSECONDS = 1e9
LEAST_COVERED_RATIO = 0.9
"""An interval of which the samples cover less was not measured."""
LONGEST_SAMPLE_SECONDS = 1.0
"""One that is longer is not of the second in which it was decoded."""


class Window(NamedTuple):
    """The samples of one interval, taken together."""

    covered_seconds: float
    """Of the interval, by samples that can be used."""
    sample_seconds: float
    """How long one of them is, in the mean; 0 without one."""
    means: tuple[float | None, ...]
    """By metric: the mean over the covered time; None where it had too few values."""
    totals: tuple[float | None, ...]
    """By metric: the sum of its values, for metrics that count."""


@dataclass(slots=True)
class Samples:
    """The samples of an interval, as they are decoded; reused for the next one."""

    metrics: int
    """How many values a sample has."""
    weights: list[float] = field(default_factory=list)
    """By sample: its seconds."""
    values: array[float] = field(default_factory=lambda: array("d"))
    """Sample after sample, the values of its metrics."""
    ended_nanoseconds: int = 0
    """When the last one ended."""

    def clear(self) -> None:
        """Forget the samples, but not when the last one ended."""
        self.weights.clear()
        del self.values[:]

    def admits(self, start_nanoseconds: int, end_nanoseconds: int) -> bool:
        """Return whether such a sample can be used, and if so count its time.

        Its values are then to be appended to `values`. Of one that reaches back into time that is
        counted already, only the rest counts.
        """
        start = max(start_nanoseconds, self.ended_nanoseconds)
        seconds = (end_nanoseconds - start) / NANOSECONDS
        is_own = start_nanoseconds > 0 and 0 < seconds <= LONGEST_SAMPLE_SECONDS
        self.ended_nanoseconds = max(self.ended_nanoseconds, end_nanoseconds)
        if is_own:
            self.weights.append(seconds)
        return is_own

    def window(self) -> Window:
        """Return what they amount to."""
        covered = sum(self.weights)
        if not self.weights:
            return Window(0.0, 0.0, (None,) * self.metrics, (None,) * self.metrics)
        columns = [self.values[metric :: self.metrics] for metric in range(self.metrics)]
        reduced = [_reduced(column, self.weights, covered) for column in columns]
        return Window(
            covered,
            covered / len(self.weights),
            tuple(mean for mean, _ in reduced),
            tuple(total for _, total in reduced),
        )


def _reduced(
    column: Sequence[float], weights: Sequence[float], covered: float
) -> tuple[float | None, float | None]:
    """Return the time-weighted mean and the sum of one metric's values.

    A value that is none (0 / 0 where no cycle passed) leaves its time out; without at least 90 % of
    the time there is no mean.
    """
    total = math.fsum(column) if all(map(math.isfinite, column)) else math.nan
    if math.isfinite(total):
        return math.fsum(map(mul, column, weights)) / covered, total
    known = [
        (value, weight)
        for value, weight in zip(column, weights, strict=True)
        if math.isfinite(value)
    ]
    seconds = math.fsum(weight for _, weight in known)
    if seconds < LEAST_COVERED_RATIO * covered:
        return None, None
    mean = math.fsum(value * weight for value, weight in known) / seconds
    return mean, math.fsum(value for value, _ in known) * covered / seconds
