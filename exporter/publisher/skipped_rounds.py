# SPDX-License-Identifier: Apache-2.0
"""The driver's readings of rounds that the counters skipped, until an activity covers these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from exporter.clock import GAP_INTERVALS
from exporter.model.reading import Activity, Vitals
from exporter.publisher.shared_time import SURE_SECONDS


class BoardRound(NamedTuple):
    """One round of the board, or several that one activity covers."""

    seconds: float
    vitals: Vitals
    previous: Vitals | None
    energy_joules: float | None


def covered_rounds(lengths: Sequence[float], seconds: float) -> int:
    """Return of how many of the last rounds the middle lies within `seconds`."""
    count, back = 0, 0.0
    for length in reversed(lengths):
        if back + length / 2 > seconds:
            break
        back += length
        count += 1
    return count


def joined(skipped: Sequence[BoardRound], present: BoardRound, activity: Activity) -> BoardRound:
    """Return the present round joined with those without counters that `activity` covers."""
    if not skipped:
        return present
    lengths = [each.seconds for each in skipped]
    count = covered_rounds(lengths, activity.seconds - present.seconds)
    rounds = [*skipped[len(lengths) - count :], present]
    return BoardRound(
        sum(each.seconds for each in rounds),
        replace(
            present.vitals,
            pcie_transmit_bytes=_sum(each.vitals.pcie_transmit_bytes for each in rounds),
            pcie_receive_bytes=_sum(each.vitals.pcie_receive_bytes for each in rounds),
        ),
        rounds[0].previous,
        _sum(each.energy_joules for each in rounds),
    )


class CountersOrDriver:
    """The increments of a board counter: from the hardware counters, else from the driver, whose
    increments wait for up to three rounds, because the next activity may cover them."""

    def __init__(self) -> None:
        self._counted = self._began = False
        self._waiting: list[tuple[float, float | None]] = []
        """Length in seconds of each waiting round, and the driver's increment."""
        self._blanks = 0
        """Rounds without an increment; reset by a minute without such a round."""
        self._sure_seconds = 0.0

    @property
    def is_known(self) -> bool:
        """Whether the sum is complete: too many rounds without an increment make it wrong."""
        return self._blanks <= GAP_INTERVALS

    def add(
        self, seconds: float, activity: Activity | None, counted: float | None, read: float | None
    ) -> float | None:
        """Take the increments of both for a round; return the increment to add now."""
        if activity is not None and counted is not None:
            self._counted = True
            amounts = [*self._missed(activity.seconds - seconds), counted]
        elif self._counted and seconds and len(self._waiting) < GAP_INTERVALS:
            self._waiting.append((seconds, read))
            return None
        else:
            self._counted = False
            amounts = [*self._missed(0.0), read]
        added = _sum(amounts)
        if None not in amounts:
            self._began, self._sure_seconds = True, self._sure_seconds + seconds
        elif seconds and self._began:
            self._blanks, self._sure_seconds = self._blanks + amounts.count(None), 0.0
        if self._sure_seconds > SURE_SECONDS:
            self._blanks = 0
        return added

    def _missed(self, covered_seconds: float) -> list[float | None]:
        """Return the increments of the waiting rounds that `covered_seconds` does not reach."""
        if not self._waiting:
            return []
        count = covered_rounds([seconds for seconds, _ in self._waiting], covered_seconds)
        missed = [amount for _, amount in self._waiting[: len(self._waiting) - count]]
        self._waiting.clear()
        return missed


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
