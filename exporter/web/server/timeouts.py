# SPDX-License-Identifier: Apache-2.0
"""Decides when a connection has timed out."""

from __future__ import annotations

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
    phase, age = activity.phase, now - activity.since
    if activity.unsent_bytes and now - activity.progressed >= limits.stuck_seconds:
        return "stalled"
    writing_since = activity.writing_since
    if writing_since is not None and now - writing_since >= limits.answer_seconds:
        return "stalled"
    if phase is Phase.HANDSHAKE and age >= limits.handshake_seconds:
        return "handshake"
    if phase is Phase.HEAD and age >= limits.head_seconds:
        return "head_timeout"
    is_answering = phase is Phase.ANSWERING or (phase is Phase.CLOSING and activity.unsent_bytes)
    if is_answering and age >= limits.answer_seconds:
        return "stalled"
    if phase is Phase.IDLE and age >= limits.idle_seconds:
        return "idle"
    if phase is Phase.CLOSING and not activity.unsent_bytes and age >= limits.linger_seconds:
        return "closed"
    return None
