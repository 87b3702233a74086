# SPDX-License-Identifier: Apache-2.0
"""The totals of a wave are the integrals of its rates, whoever reads them and how often."""

from __future__ import annotations

import pytest

from exporter.sources.simulate.waves import Phase, Rates, Wave


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
