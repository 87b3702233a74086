# SPDX-License-Identifier: Apache-2.0
"""What NCCL says of the processes of a job that compute together: frozen data, no logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

RAS_STATES = ("responding", "missing", "unresponsive", "dead")
"""From well to worst, as NCCL's RAS tells the ranks of a communicator apart: it reports itself; it
does not though its process answers; its process does not answer either; it has been given up."""


@dataclass(frozen=True, slots=True)
class Collectives:
    """The NCCL job whose RAS answers on this node."""

    ranks: Mapping[str, int] = field(default_factory=dict)
    """By `RAS_STATES`: how many of its processes, over all nodes; each counts once, by its worst
    state in any communicator."""
    communicators: int = 0
