# SPDX-License-Identifier: Apache-2.0
"""The totals of a wave are the integrals of its rates, whoever reads them and how often."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.simulate.waves import Phase, Rates, Wave

times = st.floats(0, 3e6)
lengths = st.floats(0.05, 500)
watts = st.floats(10, 1000)


@st.composite
def waves(draw: st.DrawFn) -> Wave:
    phases = draw(
        st.lists(
            st.builds(
                lambda seconds, power, swing: Phase(
                    seconds, Rates(power=power), Rates(power=power * swing)
                ),
                lengths,
                watts,
                st.floats(0, 0.05),
            ),
            min_size=1,
            max_size=3,
        )
    )
    return Wave(phases, draw(st.integers(0, 2**64 - 1)))


def edges(wave: Wave, start: float, end: float) -> list[float]:
    """Return where phases begin between two times, with the two times themselves."""
    found = [start]
    lengths_of_phases = [phase.seconds for phase in wave._phases]
    beat = sum(lengths_of_phases)
    at = start // beat * beat
    while at < end:
        for length in lengths_of_phases:
            at += length
            if start < at < end:
                found.append(at)
    return [*found, end]


@given(waves(), times, st.floats(0, 30))
def test_the_integral_grows_by_the_rates(wave: Wave, start: float, length: float) -> None:
    """Adding up the rates in small steps, phase by phase, gives what the closed form says."""
    end = start + length
    added = 0.0
    marks = edges(wave, start, end)
    for sooner, later in pairwise(marks):
        steps = 1 + int(400 * (later - sooner) / (length or 1.0))
        width = (later - sooner) / steps
        added += width * sum(wave.at(sooner + width * (step + 0.5)).power for step in range(steps))

    grown = wave.integral(end).power - wave.integral(start).power

    # The midpoint of the shortest phase is not at an edge even with the rounding of large times.
    assert grown == pytest.approx(added, rel=1e-3, abs=1e-3)


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
