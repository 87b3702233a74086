# SPDX-License-Identifier: Apache-2.0
"""The totals of a wave are the integrals of its rates, whoever reads them and how often."""

from __future__ import annotations

import pytest

from exporter.sources.simulate.waves import Phase, Rates, Wave


def test_a_steady_wave_can_be_followed() -> None:
    """A known answer: 100 W for 3 s, then 20 W for 1 s."""
    wave = Wave(
        (Phase(3.0, Rates(power=100.0), Rates()), Phase(1.0, Rates(power=20.0), Rates())), 1
    )

    assert [wave.integral(t).power for t in (0, 1, 3, 3.5, 4, 5, 41)] == [
        0,
        100,
        300,
        310,
        320,
        420,
        3300,
    ]
    assert [wave.at(t).power for t in (0, 2.9, 3.1, 4.0, 7.5)] == [100, 100, 20, 100, 20]


def test_the_integral_grows_by_the_rates() -> None:
    """Also while they wobble: the closed form is the sum of small steps."""
    phases = (
        Phase(3.0, Rates(power=100.0), Rates(power=5.0)),
        Phase(1.0, Rates(power=20.0), Rates(power=1.0)),
    )
    wave, step = Wave(phases, 7), 0.001
    for start in (0, 2, 11):
        added = sum(wave.at(start + step * (number + 0.5)).power for number in range(9000)) * step
        grown = wave.integral(start + 9).power - wave.integral(start).power
        assert grown == pytest.approx(added, rel=1e-4)
