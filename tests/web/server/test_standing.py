# SPDX-License-Identifier: Apache-2.0
"""Who is overdue, and who makes room: for every state and moment."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.server.limits import Limits
from exporter.web.server.standing import Phase, Standing, makes_room, overdue, waits_since

LIMITS = Limits()
NOW = 1000.0
AGES = st.floats(0, 200)


@pytest.mark.parametrize(
    ("phase", "seconds", "reason"),
    [
        (Phase.HANDSHAKE, 10, "handshake"),
        (Phase.HEAD, 10, "head_timeout"),
        (Phase.ANSWERING, 60, "stalled"),
        (Phase.IDLE, 75, "idle"),
        (Phase.CLOSING, 2, "closed"),
    ],
)
def test_each_phase_has_its_time(phase: Phase, seconds: float, reason: str) -> None:
    """From its first moment; a stream alone may last."""
    assert overdue(Standing(phase, NOW - seconds + 0.1), NOW, LIMITS) is None
    assert overdue(Standing(phase, NOW - seconds), NOW, LIMITS) == reason
    assert overdue(Standing(Phase.STREAMING, 0.0), NOW, LIMITS) is None


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.HANDSHAKE])
def test_what_is_unsent_has_to_go(phase: Phase) -> None:
    """Some of it within 10 s and all of it within a minute, whatever comes next."""
    just_now = Standing(phase, NOW, 1, NOW - 9.9, NOW - 9.9)
    stuck = Standing(phase, NOW, 1, NOW - 10, NOW - 10)
    drips = Standing(phase, NOW, 1, NOW - 1, NOW - 60)

    assert overdue(just_now, NOW, LIMITS) is None
    assert overdue(stuck, NOW, LIMITS) == overdue(drips, NOW, LIMITS) == "stalled"


STANDINGS = st.builds(
    lambda phase, since, unsent, progressed, emptied: Standing(
        phase, NOW - since, unsent, NOW - progressed, NOW - emptied
    ),
    st.sampled_from(Phase),
    AGES,
    st.sampled_from([0, 1, 1 << 20]),
    AGES,
    AGES,
)


@given(STANDINGS, st.floats(0, 100))
def test_who_is_overdue_stays_so(standing: Standing, later: float) -> None:
    """Time alone makes nobody welcome again."""
    if overdue(standing, NOW, LIMITS) is not None:
        assert overdue(standing, NOW + later, LIMITS) is not None


@given(STANDINGS)
def test_nobody_stays_for_ever(standing: Standing) -> None:
    """But a stream with nothing to send."""
    ends = overdue(standing, NOW + 75, LIMITS)
    assert ends or (standing.phase is Phase.STREAMING and not standing.unsent_bytes)


@dataclass(eq=False)
class Guest:
    address: str
    state: Standing

    def standing(self) -> Standing:
        return self.state


GUESTS = st.lists(st.builds(Guest, st.sampled_from("abc"), STANDINGS))


@given(GUESTS, st.sampled_from(["a", None]))
def test_who_makes_room(guests: list[Guest], address: str | None) -> None:
    """The longest without progress, of slow readers at least a second; nobody who is at work."""
    chosen = makes_room(guests, NOW, LIMITS, address)
    numbers = {name: sum(guest.address == name for guest in guests) for name in "abc"}
    asked = [
        guest
        for guest in guests
        if (
            guest.address == address if address else numbers[guest.address] == max(numbers.values())
        )
    ]
    waiting = [
        since
        for guest in asked
        if (since := waits_since(guest.standing())) is not None
        and since <= NOW - bool(guest.standing().unsent_bytes)
    ]

    if chosen is None:
        assert not waiting
    else:
        assert chosen in asked
        assert waits_since(chosen.standing()) == min(waiting)


def test_work_is_not_interrupted() -> None:
    """An answer that is being made, or a stream that has nothing new, is no reason to go."""
    guests = [Guest("a", Standing(phase, 0.0)) for phase in (Phase.ANSWERING, Phase.STREAMING)]
    assert makes_room(guests, NOW, LIMITS) is None
    stuck = Guest("a", Standing(Phase.STREAMING, 0.0, 1, NOW - 1))
    assert makes_room([*guests, stuck], NOW, LIMITS) is stuck


def test_a_flood_of_silent_connections_keeps_nobody_out() -> None:
    """However young they are: who comes last has the best chance to say something."""
    flood = [Guest("a", Standing(Phase.HEAD, NOW - 0.001 * age)) for age in range(9, -1, -1)]
    assert makes_room(flood, NOW, LIMITS, "a") is flood[0]
