# SPDX-License-Identifier: Apache-2.0
"""Rounds that the counters skip, and the activity that covers them."""

from __future__ import annotations

import pytest

from exporter.model.reading import Activity, Utilization, Vitals
from exporter.publisher.skipped_rounds import BoardRound, SkippedRounds, covered_rounds


def board_round(seconds: float, number: int, busy: float = 0.0) -> BoardRound:
    """Round `number`, in which every amount is a power of ten of it."""
    amount = 10.0**number
    vitals = Vitals(
        utilization=Utilization(busy, 1.0, seconds),
        pcie_transmit_bytes=2 * amount,
        busy_sm_clock_hertz=amount,
        mean_sm_clock_hertz=amount,
    )
    return BoardRound(seconds, vitals, Vitals(power_watts=float(number)), 5 * amount)


def test_an_activity_takes_the_rounds_that_it_covers() -> None:
    """Energy and bytes add up, traffic is since before the first of them; each round's clocks are
    taken as they are read."""
    awaited = SkippedRounds()
    awaited.add(board_round(0.2, 0, busy=0.9))
    awaited.add(board_round(0.1, 1, busy=0.5))
    joined = awaited.joined(board_round(0.1, 2, busy=1.0), Activity("gpm", 0.2))

    assert joined.seconds == pytest.approx(0.2)
    assert joined.energy_joules == 5 * 110
    assert joined.previous == Vitals(power_watts=1.0)
    assert joined.vitals.pcie_transmit_bytes == 2 * 110
    assert joined.vitals.pcie_receive_bytes is None
    assert joined.vitals.mean_sm_clock_hertz == 100
    assert joined.vitals.busy_sm_clock_hertz == 100


def test_what_was_not_read_in_a_round_is_left_out() -> None:
    """One of three rounds has no readings."""
    awaited = SkippedRounds()
    awaited.add(board_round(0.1, 1))
    awaited.add(BoardRound(0.1, Vitals(), None, None))
    joined = awaited.joined(board_round(0.1, 2), Activity("gpm", 0.3))

    assert joined.energy_joules == 5 * 110
    assert joined.vitals.pcie_transmit_bytes == 2 * 110


def test_forgotten_rounds_are_not_counted() -> None:
    """What nobody knows the use of is of no interval."""
    awaited = SkippedRounds()
    awaited.add(board_round(0.1, 0))
    awaited.clear()

    assert awaited.joined(board_round(0.1, 1), Activity("gpm", 0.2)) == board_round(0.1, 1)


@pytest.mark.parametrize(
    ("seconds", "count"), [(-0.1, 0), (0.0, 0), (0.04, 0), (0.05, 1), (0.19, 1), (0.21, 2), (9, 2)]
)
def test_a_round_counts_if_its_middle_is_covered(seconds: float, count: int) -> None:
    """Of rounds of 0.2 and then 0.1 s."""
    assert covered_rounds((0.2, 0.1), seconds) == count
