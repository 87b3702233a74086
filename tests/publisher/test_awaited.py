# SPDX-License-Identifier: Apache-2.0
"""Rounds that the counters skip, and the activity that covers them."""

from __future__ import annotations

import pytest

from exporter.model.reading import Activity, Vitals
from exporter.publisher.awaited import AwaitedRounds, BoardRound, covered_rounds


def board_round(seconds: float, number: int) -> BoardRound:
    """Round `number`, in which every amount is a power of ten of it."""
    amount = 10.0**number
    vitals = Vitals(
        pcie_transmit_bytes=2 * amount,
        mean_sm_clock_hertz=amount,
    )
    return BoardRound(seconds, vitals, Vitals(power_watts=float(number)), 5 * amount)


def test_an_activity_takes_the_rounds_that_it_covers() -> None:
    """Energy and bytes add up, traffic is since before the first of them."""
    awaited = AwaitedRounds()
    awaited.add(board_round(0.2, 0))
    awaited.add(board_round(0.1, 1))
    joined = awaited.joined(board_round(0.1, 2), Activity("gpm", 0.2))

    assert joined.seconds == pytest.approx(0.2)
    assert joined.energy_joules == 5 * 110
    assert joined.previous == Vitals(power_watts=1.0)
    assert joined.vitals.pcie_transmit_bytes == 2 * 110
    assert joined.vitals.pcie_receive_bytes is None
    # The history of the clock takes the samples of each round by itself.
    assert joined.vitals.mean_sm_clock_hertz == 100.0


def test_what_was_not_read_is_left_out() -> None:
    """A round without energy and traffic adds none."""
    awaited = AwaitedRounds()
    awaited.add(board_round(0.1, 1))
    awaited.add(BoardRound(0.1, Vitals(), None, None))
    joined = awaited.joined(board_round(0.1, 2), Activity("gpm", 0.3))

    assert joined.energy_joules == 5 * 110
    assert joined.vitals.pcie_transmit_bytes == 2 * 110


def test_forgotten_rounds_are_not_counted() -> None:
    """What nobody knows the use of is of no interval."""
    awaited = AwaitedRounds()
    awaited.add(board_round(0.1, 0))
    awaited.clear()

    assert awaited.joined(board_round(0.1, 1), Activity("gpm", 0.2)) == board_round(0.1, 1)


@pytest.mark.parametrize(
    ("seconds", "count"), [(-0.1, 0), (0.0, 0), (0.04, 0), (0.05, 1), (0.19, 1), (0.21, 2), (9, 2)]
)
def test_a_round_counts_if_its_middle_is_covered(seconds: float, count: int) -> None:
    """Of rounds of 0.2 and then 0.1 s."""
    assert covered_rounds((0.2, 0.1), seconds) == count
