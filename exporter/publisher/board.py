# SPDX-License-Identifier: Apache-2.0
"""The running totals of one board: the driver's own counters, else sums over the intervals."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from exporter.model.reading import THROTTLE_REASONS, Activity, Vitals
from exporter.model.snapshot import BoardTotals
from exporter.publisher.skipped_rounds import CountersOrDriver

KEPT_SECONDS = 10.0


class BoardTotal:
    """A counter: the driver's total or our own sum, whichever came first, so it never jumps."""

    __slots__ = ("_sum", "ours", "value")

    def __init__(self) -> None:
        self.value: float | None = None
        """None while the driver does not report its total, and while our sum is incomplete."""
        self._sum = 0.0
        self.ours: bool | None = None

    def follow(self, total: float | None) -> None:
        """Take the driver's total; None if the driver does not report it now."""
        if self.ours:
            return
        if total is not None:
            self.ours = False
        self.value = total

    def add(self, increment: float | None, *, known: bool = True) -> None:
        """Add to our own sum, shown only while `known`; no effect where the driver counts."""
        if increment is not None and self.ours is not False:
            self.ours = True
            self._sum += increment
        if self.ours:
            self.value = self._sum if known else None


class BoardCounter(NamedTuple):
    """One counter of the board, and where its total or its increments come from."""

    field: str
    """The field of `BoardTotals`."""
    driver: Callable[[Vitals], float | None] = lambda _: None
    counted: Callable[[Activity], float | None] = lambda _: None
    read: Callable[[Vitals, float], float | None] = lambda *_: None
    """The increment by the driver's readings, used where the hardware counters have none."""
    label: str | None = None
    """The key, where the field is a mapping."""


def _energy(vitals: Vitals, seconds: float) -> float | None:
    return None if vitals.power_watts is None else vitals.power_watts * seconds


def _throttle(reason: str) -> BoardCounter:
    def held(vitals: Vitals, seconds: float) -> float | None:
        reasons = vitals.throttle_reasons
        return None if reasons is None else seconds if reason in reasons else 0.0

    return BoardCounter(
        "throttle_seconds",
        lambda vitals: vitals.throttle_seconds.get(reason),
        read=held,
        label=reason,
    )


def _pcie(field: str) -> BoardCounter:
    return BoardCounter(
        field, counted=attrgetter(field), read=lambda vitals, _: getattr(vitals, field)
    )


def _nvlink(field: str) -> BoardCounter:
    return BoardCounter(field, attrgetter(f"{field}_total"), attrgetter(field))


BOARD_TOTALS: tuple[BoardCounter, ...] = (
    BoardCounter("energy_joules", attrgetter("energy_joules"), read=_energy),  # the first
    *(_throttle(reason) for reason in THROTTLE_REASONS),
    _pcie("pcie_transmit_bytes"),
    _pcie("pcie_receive_bytes"),
    _nvlink("nvlink_transmit_bytes"),
    _nvlink("nvlink_receive_bytes"),
    BoardCounter("c2c_transmit_bytes", counted=attrgetter("c2c_transmit_bytes")),
    BoardCounter("c2c_receive_bytes", counted=attrgetter("c2c_receive_bytes")),
)


class BoardIntegral:
    """The totals of one board since it was first seen."""

    def __init__(self) -> None:
        self._tallies = [(each, BoardTotal(), CountersOrDriver()) for each in BOARD_TOTALS]
        self._energy = self._tallies[0][1]

    def add(self, vitals: Vitals, activity: Activity | None, seconds: float) -> float | None:
        """Add an interval, and return the energy used in it: by the driver, else power x time.

        With ``seconds = 0`` (the first read, or after a gap) only the driver's totals are taken.
        """
        before = self._energy.value
        for counter, tally, preferred in self._tallies:
            tally.follow(counter.driver(vitals))
            if tally.ours is False:
                continue
            counted = None if activity is None else counter.counted(activity)
            tally.add(
                preferred.add(seconds, activity, counted, counter.read(vitals, seconds)),
                known=preferred.is_known,
            )
        after = self._energy.value
        if not seconds:
            return None
        if before is None or after is None or after < before:
            return _energy(vitals, seconds)
        return after - before

    def totals(self) -> BoardTotals:
        """Return the totals so far."""
        totals: dict[str, Any] = {}
        for counter, tally, _ in self._tallies:
            if tally.value is None:
                continue
            if counter.label is None:
                totals[counter.field] = tally.value
            else:
                totals.setdefault(counter.field, {})[counter.label] = tally.value
        return BoardTotals(**totals, energy_is_power=self._energy.ours is True)


class EnergyHistory:
    """The energy of a board over any recent interval: hardware counters lag behind the driver."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, float]] = deque()

    def add(self, now: float, seconds: float, joules: float | None) -> None:
        """Add the energy of a round; after a gap (``seconds = 0``, None) start over."""
        if not self._marks or not seconds or joules is None:
            self._marks = deque([(now, 0.0)])
            return
        self._marks.append((now, self._marks[-1][1] + joules))
        while self._marks[1][0] < now - KEPT_SECONDS - seconds:
            self._marks.popleft()

    def between(self, start: float, end: float) -> float | None:
        """Return the joules between two monotonic times; None outside the history."""
        before, after = self._until(start), self._until(end)
        return None if before is None or after is None else after - before

    def _until(self, at: float) -> float | None:
        for (since, before), (until, after) in pairwise(self._marks):
            if since <= at <= until:
                return before + (after - before) * (at - since) / (until - since)
        return None
