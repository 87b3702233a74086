# SPDX-License-Identifier: Apache-2.0
"""One client is one at every limit, whatever addresses it has; and all have their turn."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.fairness import FairQueue, origin


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", "127.0.0.0/8"),
        ("127.255.3.4", "127.0.0.0/8"),
        ("::ffff:127.9.9.9", "127.0.0.0/8"),
        ("::1", "::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1/32"),
        ("::FFFF:0a00:0001", "10.0.0.1/32"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("no address", "no address"),
    ],
)
def test_who_counts_as_one(address: str, expected: str) -> None:
    assert origin(address) == expected


PLACES = st.sampled_from("abcdefg")
STEPS = st.lists(st.none() | PLACES, max_size=80)
"""Where an item comes from; None takes one out."""


@given(STEPS, st.integers(1, 9), st.none() | st.integers(1, 4))
def test_nothing_is_lost_and_nobody_is_crowded_out(
    steps: list[str | None], most: int, most_of_one: int | None
) -> None:
    """Only who has most has to go, the newest first; all are in once, and there is a limit."""
    queue: FairQueue[tuple[str, int]] = FairQueue(most, most_of_one)
    inside: list[tuple[str, int]] = []
    for number, of in enumerate(steps):
        numbers = Counter(place for place, _ in inside)
        if of is not None:
            item = (of, number)
            inside.append(item)
            left_out = queue.put(of, item)
            own = numbers[of] + 1
            assert (left_out is None) == (len(inside) <= most and own <= (most_of_one or most))
            if left_out is not None:
                numbers[of] += 1
                place = left_out[0]
                assert left_out == [each for each in inside if each[0] == place][-1]
                if own <= (most_of_one or most):
                    assert numbers[place] == max(numbers.values())
                    assert place == of or numbers[of] < numbers[place]
                inside.remove(left_out)
        elif inside:
            item = queue.pop()
            assert item == next(each for each in inside if each[0] == item[0])
            inside.remove(item)
        assert sorted(queue) == sorted(inside)
        assert len(queue) == len(inside) <= most


@given(STEPS, st.lists(PLACES, min_size=200, max_size=200))
def test_the_first_of_its_origin_has_its_turn(before: list[str | None], flood: list[str]) -> None:
    """After one of each other origin at most, however many come meanwhile."""
    queue: FairQueue[str] = FairQueue(32)
    for of in before:
        if of is not None:
            queue.put(of, of)
        elif queue:
            queue.pop()
    others = len(set(queue))
    assert queue.put("who knows", "the password") is None or len(queue) == 32
    arrivals = iter(flood)
    for _ in range(others):
        for _ in range(20):
            of = next(arrivals, "a")
            queue.put(of, of)
        if queue.pop() == "the password":
            return
    assert queue.pop() == "the password"
