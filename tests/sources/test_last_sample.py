# SPDX-License-Identifier: Apache-2.0
"""What a round gets of activities that arrive in their own time."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Activity, Device
from exporter.sources.interface import OpenedGpu
from exporter.sources.last_sample import LEAST_COVERED_RATIO, MOST_HELD, Held, HeldSource
from exporter.sources.reading_state import Journal

FOREVER = 1e9


def dcgm(engine: float | None = 0.5, **fields: float) -> Activity:
    return replace(Activity("dcgm", 1.0, engine=engine), **fields)  # type: ignore[arg-type]


def gpu(*shares: int | None) -> OpenedGpu:
    device = Device(index=0, uuid="GPU-a", name="x")
    return OpenedGpu(None, device, shares or (None,), Journal("GPU 0"))


def test_what_one_activity_lacks_is_not_known_of_the_round() -> None:
    """It is not taken for 0, and not for the mean of the rest."""
    held = Held()
    held.restart(0.0)
    held.put(dcgm(0.2, tensor=0.1), 0.0, FOREVER)
    held.put(dcgm(0.4), 1.0, FOREVER)

    found = held.take(2.0)

    assert found is not None
    assert found.engine == pytest.approx(0.3)
    assert found.tensor is None


def test_a_round_that_is_mostly_covered_is_measured() -> None:
    """Its length is what was covered; what is known of less is shown, and adds to no total."""
    held = Held()
    held.restart(0.0)
    held.put(dcgm(), 0.0, longest_seconds=0.95)
    found = held.take(1.0)

    assert found is not None
    assert (found.seconds, found.integrable) == (0.95, True)
    assert held.take(2.0) is None
    held.put(dcgm(), 2.5, FOREVER)
    part = held.take(3.0)
    assert part is not None
    assert (part.seconds, part.integrable) == (0.5, False)


def test_what_stands_for_longer_than_it_is_the_mean_of_is_a_sample() -> None:
    """It is shown until it may stand no more, and adds to no total."""
    held = Held()
    held.restart(0.0)
    held.put(dcgm(), 0.0, 3.0, mean_seconds=1.5)

    taken = [held.take(float(now)) for now in range(1, 6)]

    assert [found and found.integrable for found in taken] == [True, False, False, None, None]


def test_each_counts_for_as_long_as_it_was_made() -> None:
    """However late it was found, as long as that is within what it takes to look."""
    held = Held(look_seconds=1.0)
    held.restart(0.0)
    held.put(dcgm(0.0), 0.0, FOREVER, made_at=0.0)
    for number in range(1, 7):  # found at once, or almost a second later
        made = float(number)
        held.put(dcgm(number % 2), made + 0.9 * (number % 2), FOREVER, made_at=made)

    found = held.take(7.0)

    assert found is not None
    assert found.engine == pytest.approx(3.0 / 7.0)
    assert found.integrable


def test_an_activity_stands_no_longer_than_it_may() -> None:
    """Then nothing is known until the next one."""
    held = Held()
    held.put(dcgm(), 0.0, longest_seconds=3.0)

    assert held.is_fresh(2.9)
    assert not held.is_fresh(3.0)
    held.put(dcgm(), 4.0, longest_seconds=3.0)
    assert held.is_fresh(4.0)
    held.end(5.0)
    assert not held.is_fresh(5.0)


def test_what_nobody_takes_does_not_pile_up() -> None:
    """The oldest is dropped."""
    held = Held()
    held.restart(0.0)
    for now in range(MOST_HELD + 10):
        held.put(dcgm(), float(now), FOREVER)

    assert len(held._samples) == MOST_HELD
    assert held.take(MOST_HELD + 10.0) is not None
    assert len(held._samples) == 1


@given(
    arrivals=st.lists(
        st.tuples(st.floats(0.05, 4.0), st.floats(0, 1), st.floats(0, 1e12)), min_size=1
    ),
    rounds=st.lists(st.floats(0.05, 4.0), min_size=1),
)
def test_totals_over_rounds_are_those_of_the_source(
    arrivals: list[tuple[float, float, float]], rounds: list[float]
) -> None:
    """However the rounds fall: nothing counts twice, and nothing is lost while something stands."""
    held = Held()
    times = list(accumulate((length for length, _, _ in arrivals), initial=0.0))
    puts = list(zip(times, arrivals, strict=False))
    ends = list(accumulate(rounds))
    held.restart(0.0)
    seconds = active = moved = 0.0
    for end in ends:
        while puts and puts[0][0] < end:
            since, (_, ratio, rate) = puts.pop(0)
            held.put(dcgm(ratio, pcie_receive_bytes=rate), since, FOREVER)
        found = held.take(end)
        assert found is not None
        assert found.engine is not None
        assert found.pcie_receive_bytes is not None
        seconds += found.seconds
        active += found.engine * found.seconds
        moved += found.pcie_receive_bytes
    ending = [*times[1:-1], math.inf]
    stood = [max(0.0, min(end, ends[-1]) - at) for at, end in zip(times, ending, strict=False)]
    held_for = list(zip(arrivals, stood, strict=True))

    assert seconds == pytest.approx(ends[-1])
    assert active == pytest.approx(sum(ratio * time for (_, ratio, _), time in held_for))
    assert moved == pytest.approx(sum(rate * time for (_, _, rate), time in held_for))


@given(
    st.lists(st.tuples(st.sampled_from(["put", "end", "take"]), st.floats(-0.5, 3.0)), max_size=40),
    st.floats(0.1, 5.0),
)
def test_no_time_is_covered_that_has_not_passed(
    events: list[tuple[str, float]], longest: float
) -> None:
    """Also where a thread comes late with what it read before."""
    held, now, began = Held(), 0.0, None
    covered = 0.0
    for event, step in events:
        now += max(step, 0.0)
        if event == "put":
            held.put(dcgm(), now + min(step, 0.0), longest)
        elif event == "end":
            held.end(now + min(step, 0.0))
        else:
            found = held.take(now)
            began = now if began is None else began
            if found is not None:
                assert LEAST_COVERED_RATIO * found.seconds > 0
                assert found.engine == pytest.approx(0.5)
                covered += found.seconds
    assert began is None or covered <= now - began + 1e-9


def test_a_source_reads_its_shares_from_the_round_after_they_are_known() -> None:
    """What came before its first read is not its own, nor is what another share had."""
    shares: dict[int | None, Held] = {2: Held()}
    noted: list[str] = []
    mine = gpu(1, 2)
    source = HeldSource(mine, shares.get, lambda gpu: noted.append(gpu.device.uuid))

    assert not source.measures(2)
    shares[2].put(dcgm(), 0.0, FOREVER)
    assert (source.measures(1), source.measures(2)) == (False, True)
    assert source.read(1.0) == {}
    assert source.read(2.0) == {2: dcgm(age_seconds=2.0)}
    shares[1] = Held()
    shares[1].put(dcgm(0.1), 2.0, FOREVER)
    shares[2] = Held()
    shares[2].put(dcgm(0.9), 2.0, FOREVER)
    assert source.read(3.0) == {1: dcgm(0.1, age_seconds=1.0), 2: dcgm(0.9, age_seconds=1.0)}
    assert source.read(4.0) == {1: dcgm(0.1, age_seconds=2.0), 2: dcgm(0.9, age_seconds=2.0)}
    assert noted == ["GPU-a"] * 4
