# SPDX-License-Identifier: Apache-2.0
"""What was read in rounds that the hardware counters skipped, until an activity covers them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from exporter.clock import GAP_INTERVALS
from exporter.model.reading import Activity, Vitals


class BoardRound(NamedTuple):
    """One round of the board, or several that one activity covers."""

    seconds: float
    vitals: Vitals
    previous: Vitals | None
    """Those of the round before it."""
    energy_joules: float | None
    """Of the board, in this round."""


def covered_rounds(lengths: Sequence[float], seconds: float) -> int:
    """Return how many of the last rounds an activity covers that reaches `seconds` back.

    `lengths` are those of the rounds, in seconds. A round counts if its middle is covered: board
    and counters are not read at the same moment.
    """
    count, back = 0, 0.0
    for length in reversed(lengths):
        if back + length / 2 > seconds:
            break
        back += length
        count += 1
    return count


class AwaitedRounds:
    """The rounds of one share that wait for an activity."""

    def __init__(self) -> None:
        self._rounds: list[BoardRound] = []

    def add(self, skipped: BoardRound) -> None:
        """Keep a round that the counters skipped."""
        self._rounds.append(skipped)

    def clear(self) -> None:
        """Forget all: it is not known, or counted otherwise, what the share did in them."""
        self._rounds.clear()

    def joined(self, present: BoardRound, activity: Activity) -> BoardRound:
        """Return the present round with those before it that `activity` covers."""
        if not self._rounds:
            return present
        lengths = [each.seconds for each in self._rounds]
        count = covered_rounds(lengths, activity.seconds - present.seconds)
        rounds = [*self._rounds[len(lengths) - count :], present]
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


class Preferred:
    """Bytes by the hardware counters, else by the driver's own readings; none counts twice.

    Where the counters have given them, those of the driver wait for up to three rounds, because the
    next activity may cover them.
    """

    def __init__(self) -> None:
        self._counted = False
        self._awaited: list[tuple[float, float]] = []
        """Length in seconds and bytes of each round."""

    def add(
        self, seconds: float, activity: Activity | None, counted: float | None, read: float | None
    ) -> float | None:
        """Take what both gave in a round; return what is to be added now."""
        if activity is not None and counted is not None:
            self._counted = True
            return counted + self._missed(activity.seconds - seconds)
        if not self._counted:
            return read
        if seconds and len(self._awaited) < GAP_INTERVALS:
            self._awaited.append((seconds, read or 0.0))
            return None
        self._counted = False
        return self._missed(0.0) + (read or 0.0)

    def _missed(self, covered_seconds: float) -> float:
        """Return the bytes of the rounds that wait, without those of the last ones in this time."""
        count = covered_rounds([seconds for seconds, _ in self._awaited], covered_seconds)
        missed = sum(moved for _, moved in self._awaited[: len(self._awaited) - count])
        self._awaited.clear()
        return missed


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
