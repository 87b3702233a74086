# SPDX-License-Identifier: Apache-2.0
"""What the board drew in a time that ended before its last round."""

from __future__ import annotations

import pytest

from exporter.publisher.board import EnergyHistory


def test_it_is_of_the_time_and_not_of_the_round() -> None:
    """60 W for five seconds and 400 W after them, in rounds of a second."""
    energy = EnergyHistory()
    assert energy.between(0.0, 1.0) is None
    energy.add(10.0, 0.0, None)
    for second in range(11, 21):
        energy.add(float(second), 1.0, 60.0 if second <= 15 else 400.0)

    assert energy.between(12.0, 14.5) == pytest.approx(150.0)
    assert energy.between(14.5, 15.5) == pytest.approx(230.0)
    assert energy.between(9.5, 12.0) is None
    assert energy.between(19.0, 20.5) is None


@pytest.mark.parametrize("lost", [(0.0, 5.0), (1.0, None)])
def test_nothing_is_known_over_a_gap(lost: tuple[float, float | None]) -> None:
    energy = EnergyHistory()
    for second in range(10):
        energy.add(float(second), 1.0, 60.0)
    energy.add(10.0, *lost)
    energy.add(11.0, 1.0, 60.0)

    assert energy.between(8.0, 9.0) is None
    assert energy.between(10.0, 11.0) == pytest.approx(60.0)
