# SPDX-License-Identifier: Apache-2.0
"""The running totals of one board: the driver's own counters, else sums over the intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from exporter.clock import GAP_INTERVALS
from exporter.model.reading import THROTTLE_REASONS, Activity, Vitals
from exporter.model.snapshot import BoardTotals
from exporter.publisher.awaited import Preferred


class Tally:
    """A counter that is either the driver's total or our own sum: whichever was there first.

    It never changes from one to the other, so it never jumps.
    """

    __slots__ = ("_blanks", "_ours", "_total", "value")

    def __init__(self) -> None:
        self.value: float | None = None
        """None while the driver does not give its total, which may go on meanwhile, or while what
        we count is not read."""
        self._total = 0.0
        self._blanks = 0
        self._ours: bool | None = None
        """None until one of them was there."""

    def follow(self, total: float | None) -> None:
        """Take the driver's total; None means that it is not known now."""
        if self._ours:
            return
        if total is not None:
            self._ours = False
        self.value = total

    def add(self, increment: float | None, seconds: float = 0.0) -> None:
        """Add to our own sum what an interval gave; no effect where the driver counts."""
        if increment is not None and self._ours is not False:
            self._ours = True
            self._total += increment
            self._blanks, self.value = 0, self._total
        elif self._ours and seconds:
            self._blanks += 1
            if self._blanks > GAP_INTERVALS:
                self.value = None


class BoardCounter(NamedTuple):
    """One counter of the board: the driver's total, and what an interval adds where we count."""

    field: str
    """Of `BoardTotals`."""
    driver: Callable[[Vitals], float | None]
    ours: Callable[[Vitals, Activity | None, float], float | None]
    label: str | None = None
    """Where the field is a mapping."""
    read: Callable[[Vitals], float | None] | None = None
    """What the driver's own readings give of an interval, for where the counters give nothing."""


def _nothing(_: Vitals) -> None:
    """Return no total: the driver has no such counter."""


def _energy(vitals: Vitals, _: Activity | None, seconds: float) -> float | None:
    return None if vitals.power_watts is None else vitals.power_watts * seconds


def _throttle(reason: str) -> BoardCounter:
    def held(vitals: Vitals, _: Activity | None, seconds: float) -> float | None:
        reasons = vitals.throttle_reasons
        return None if reasons is None else seconds if reason in reasons else 0.0

    return BoardCounter(
        "throttle_seconds", lambda vitals: vitals.throttle_seconds.get(reason), held, reason
    )


def _moved(field: str) -> Callable[[Vitals, Activity | None, float], float | None]:
    """Return the bytes that the counters give."""

    def moved(_: Vitals, activity: Activity | None, _seconds: float) -> float | None:
        return None if activity is None else getattr(activity, field)

    return moved


def _pcie(field: str) -> BoardCounter:
    return BoardCounter(field, _nothing, _moved(field), read=lambda vitals: getattr(vitals, field))


BOARD_TOTALS: tuple[BoardCounter, ...] = (
    BoardCounter("energy_joules", lambda vitals: vitals.energy_joules, _energy),
    *(_throttle(reason) for reason in THROTTLE_REASONS),
    _pcie("pcie_transmit_bytes"),
    _pcie("pcie_receive_bytes"),
    BoardCounter(
        "nvlink_transmit_bytes",
        lambda vitals: vitals.nvlink_transmit_bytes_total,
        _moved("nvlink_transmit_bytes"),
    ),
    BoardCounter(
        "nvlink_receive_bytes",
        lambda vitals: vitals.nvlink_receive_bytes_total,
        _moved("nvlink_receive_bytes"),
    ),
    BoardCounter("c2c_transmit_bytes", _nothing, _moved("c2c_transmit_bytes")),
    BoardCounter("c2c_receive_bytes", _nothing, _moved("c2c_receive_bytes")),
)


class BoardIntegral:
    """The totals of one board since it was first seen."""

    def __init__(self) -> None:
        self._tallies = [(counter, Tally()) for counter in BOARD_TOTALS]
        self._preferred = {
            counter.field: Preferred() for counter in BOARD_TOTALS if counter.read is not None
        }
        self._energy = next(
            tally for counter, tally in self._tallies if counter.field == "energy_joules"
        )

    def add(self, vitals: Vitals, activity: Activity | None, seconds: float) -> float | None:
        """Add the interval of `seconds` that ends with `vitals`; return the energy used in it.

        With ``seconds = 0`` (the first read, or after a gap) only the driver's totals are taken.
        Where the driver's energy starts over or is not known, the energy used is power x time.
        """
        before = self._energy.value
        for counter, tally in self._tallies:
            tally.follow(counter.driver(vitals))
            ours = counter.ours(vitals, activity, seconds)
            if counter.read is not None:
                preferred = self._preferred[counter.field]
                ours = preferred.add(seconds, activity, ours, counter.read(vitals))
            tally.add(ours, seconds)
        after = self._energy.value
        if not seconds:
            return None
        if before is None or after is None or after < before:
            return _energy(vitals, activity, seconds)
        return after - before

    def totals(self) -> BoardTotals:
        """Return the totals so far."""
        totals: dict[str, Any] = {}
        for counter, tally in self._tallies:
            if tally.value is None:
                continue
            if counter.label is None:
                totals[counter.field] = tally.value
            else:
                totals.setdefault(counter.field, {})[counter.label] = tally.value
        return BoardTotals(**totals)
