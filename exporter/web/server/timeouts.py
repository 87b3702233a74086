# SPDX-License-Identifier: Apache-2.0
"""Decides when a connection has timed out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from exporter.web.server.limits import Limits


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
