# SPDX-License-Identifier: Apache-2.0
"""Limits on connections: their number, sizes and timeouts."""

from __future__ import annotations

import math
import resource
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

RESERVED_DESCRIPTORS = 64
"""For the GPUs' devices, /proc, the training socket and log lines."""
FEWEST_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds. The operator sets the first two, tests also the others."""

    connections: int = 512
    connections_per_address: int = 100
    head_bytes: int = 32 * 1024
    head_fields: int = 100
    head_seconds: float = 10.0
    """From the first byte of a request, or from the connection, to the end of the head."""
    idle_seconds: float = 75.0
    """Between an answer and the next request."""
    stuck_seconds: float = 10.0
    """Without any byte of what is to be sent being taken."""
    answer_seconds: float = 60.0
    """From a head to the last byte of its answer; of a stream, for each event."""
    handshake_seconds: float = 10.0
    linger_seconds: float = 2.0
    """From the end of the last answer to that of its connection, so that the client can read it."""
    discarded_bytes: int = 2**20
    """What a client may send meanwhile."""
    unsent_seconds: float = 1.0
    unsent_bytes: int = 24 * 2**20
    """Of large answers that are still being sent; one that several clients read counts once. Beyond
    it, a client that has read nothing for `unsent_seconds` is disconnected."""

    def affordable(self) -> Limits:
        """Return these limits, lowered in proportion where the limit of open files asks for it."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft - RESERVED_DESCRIPTORS >= self.connections:
            return self
        connections = min(self.connections, max(FEWEST_CONNECTIONS, soft - RESERVED_DESCRIPTORS))
        per_address = self.connections_per_address * connections // self.connections
        return replace(self, connections=connections, connections_per_address=max(1, per_address))


class Phase(Enum):
    """What a connection is doing."""

    HANDSHAKE = "from accept to the end of the TLS handshake"
    HEAD = "a request is due or incomplete"
    ANSWERING = "from a complete head to the last byte of its answer"
    STREAMING = "sending an answer of unknown length"
    IDLE = "between two requests"
    CLOSING = "our side is closed, the client's not yet"


Timeout = Literal["handshake", "head_timeout", "stalled", "idle", "closed"]
"""Of `CONNECTION_REFUSALS`, of `REQUEST_ABORTS`, or, the last two, not counted."""


@dataclass(slots=True)
class Activity:
    """What a connection is doing and since when; times are of one monotonic clock, in seconds."""

    phase: Phase
    since: float
    """When the phase began."""
    unsent_bytes: int = 0
    """What the client has not acknowledged."""
    progressed: float = 0.0
    """When it last acknowledged some of that, or there was nothing to acknowledge."""
    writing_since: float | None = None
    """Since when the application waits for the client to take what it sent last."""


def timed_out(activity: Activity, now: float, limits: Limits) -> Timeout | None:
    """Return why this connection is to be ended now, or None."""
    stuck = now - activity.progressed if activity.unsent_bytes else 0.0
    written = 0.0 if activity.writing_since is None else now - activity.writing_since
    if stuck >= limits.stuck_seconds or written >= limits.answer_seconds:
        return "stalled"
    answering: tuple[float, Timeout] = (limits.answer_seconds, "stalled")
    ends: dict[Phase, tuple[float, Timeout]] = {
        Phase.HANDSHAKE: (limits.handshake_seconds, "handshake"),
        Phase.HEAD: (limits.head_seconds, "head_timeout"),
        Phase.ANSWERING: answering,
        Phase.STREAMING: (math.inf, "stalled"),
        Phase.IDLE: (limits.idle_seconds, "idle"),
        Phase.CLOSING: answering if activity.unsent_bytes else (limits.linger_seconds, "closed"),
    }
    seconds, reason = ends[activity.phase]
    return reason if now - activity.since >= seconds else None
