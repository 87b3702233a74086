# SPDX-License-Identifier: Apache-2.0
"""How much a connection may send and for how long it may do nothing; how many there may be."""

from __future__ import annotations

import resource
from dataclasses import dataclass

RESERVED_DESCRIPTORS = 64
"""For the GPUs' devices, /proc, the training socket and log lines."""
FEWEST_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds. The operator sets the first three, tests also the others."""

    connections: int = 512
    connections_per_address: int = 100
    limit_loopback: bool = True
    """Whether the limit per address holds for connections from this host too."""
    head_bytes: int = 32 * 1024
    head_fields: int = 100
    head_seconds: float = 10.0
    """From the first byte of a request, or from the connection, to the end of the head."""
    idle_seconds: float = 75.0
    """Between an answer and the next request."""
    stuck_seconds: float = 10.0
    """Without any byte of what is to be sent being taken."""
    answer_seconds: float = 60.0
    """From a head to the last byte of its answer; of a stream, to each event's."""
    handshake_seconds: float = 10.0
    linger_seconds: float = 2.0
    """From a refusal to the end of its connection, so that the client can read it."""
    room_seconds: float = 1.0
    """Who took nothing of an answer for so long may have to make room; who is silent, sooner."""
    unsent_bytes: int = 24 * 2**20
    """Of the answers that clients are slow to take, those that several share counted once."""


def affordable(connections: int) -> int:
    """Return as many of these connections as the process has descriptors for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    return max(FEWEST_CONNECTIONS, min(connections, soft - RESERVED_DESCRIPTORS))
