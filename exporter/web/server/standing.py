# SPDX-License-Identifier: Apache-2.0
"""How a connection stands, whether it is overdue, and which one makes room for another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol, TypeVar

from exporter.web.server.limits import Limits


class Phase(Enum):
    """What a connection is in."""

    HANDSHAKE = "from accept to the end of TLS's handshake; without TLS for a moment"
    HEAD = "a request is due or under way"
    ANSWERING = "from the head to the last byte of an answer"
    STREAMING = "an answer that has no end"
    IDLE = "after an answer"
    CLOSING = "what was said is still to be sent or read, then it ends"


Overdue = Literal["handshake", "head_timeout", "stalled", "idle", "closed"]
"""Why a connection is ended: of `CONNECTION_REFUSALS`, of `REQUEST_ABORTS`, or not counted."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One connection at a moment; times are of one monotonic clock, in seconds."""

    phase: Phase
    since: float
    """When the phase began."""
    unsent_bytes: int = 0
    progressed: float = 0.0
    """When some of what is unsent was last seen to go."""
    emptied: float = 0.0
    """When the kernel had last taken all of it."""


def overdue(standing: Standing, now: float, limits: Limits) -> Overdue | None:
    """Return why this connection is to be ended now, or None."""
    phase, age = standing.phase, now - standing.since
    if standing.unsent_bytes:
        stuck = now - standing.progressed >= limits.stuck_seconds
        slow = now - standing.emptied >= limits.answer_seconds
        if stuck or slow:
            return "stalled"
    if phase is Phase.HANDSHAKE and age >= limits.handshake_seconds:
        return "handshake"
    if phase is Phase.HEAD and age >= limits.head_seconds:
        return "head_timeout"
    if phase is Phase.ANSWERING and age >= limits.answer_seconds:
        return "stalled"
    if phase is Phase.IDLE and age >= limits.idle_seconds:
        return "idle"
    if phase is Phase.CLOSING and not standing.unsent_bytes and age >= limits.linger_seconds:
        return "closed"
    return None


def waits_since(standing: Standing) -> float | None:
    """Return since when this connection waits for its client; None while it is at work."""
    if standing.unsent_bytes:
        return standing.progressed
    if standing.phase in (Phase.ANSWERING, Phase.STREAMING):
        return None
    return standing.since


class Guest(Protocol):
    """A connection, as far as it matters for room."""

    @property
    def address(self) -> str:
        """Whose it is."""

    def standing(self) -> Standing:
        """Return how it stands, as far as was last looked."""


G = TypeVar("G", bound=Guest)


def makes_room(
    guests: Iterable[G], now: float, limits: Limits, address: str | None = None
) -> G | None:
    """Return the connection that waited longest without progress; None if all are at work.

    Only those of `address` are looked at or, without one, those of the address that has most.
    """
    candidates = list(guests)
    if address is None:
        numbers = Counter(guest.address for guest in candidates)
        most = max(numbers.values(), default=0)
        candidates = [guest for guest in candidates if numbers[guest.address] == most]
    else:
        candidates = [guest for guest in candidates if guest.address == address]
    found, earliest = None, now
    for guest in candidates:
        standing = guest.standing()
        since = waits_since(standing)
        # Who reads slowly may be about to go on; who is silent has nothing to lose.
        least = limits.room_seconds if standing.unsent_bytes else 0.0
        if since is not None and since <= min(earliest, now - least):
            found, earliest = guest, since
    return found
