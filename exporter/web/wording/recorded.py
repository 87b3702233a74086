# SPDX-License-Identifier: Apache-2.0
"""Notices about recorded and simulated data, and the end of a recording."""

from __future__ import annotations

import re
from collections.abc import Collection

from exporter.web.wording.numbers import LONG, capitalised, cut

ENDED = "ended"
HAS_ENDED = f"{ENDED}: the recording has ended"
"""Why a GPU of a recording that has ended cannot be read."""
STALE = "no fresh reading"
"""The publisher's reason for a GPU without new readings."""
_ENDED = re.compile(r"the recording .*has ended")
"""The problem of the node at the end of a replay."""
_SIMULATED = "simulated"
"""The driver version of simulated GPUs, also in a recording of them."""
_SAID = {
    ("nvml", False): None,
    ("simulate", True): "Not real GPUs. This data is simulated.",
    ("replay", False): "This data is recorded, and played back: it is not what the GPUs do now.",
    ("replay", True): "Not real GPUs. This data is simulated; it was recorded, and is played back.",
}
"""By source, and whether the GPUs are simulated."""


def recording_ended(problem: str | None) -> str | None:
    """Return "the recording NAME has ended" if that is the problem of the node, else None."""
    found = _ENDED.match(" ".join((problem or "").split()))
    return None if found is None else cut(found[0], LONG)


def down_reason(source: str, reason: str | None, problem: str | None) -> str:
    """Return why a GPU is down; at the end of a recording, that it has ended."""
    if source == "replay" and reason in (None, STALE) and recording_ended(problem) is not None:
        return HAS_ENDED
    return reason or "no answer"


def notice(
    identities: Collection[tuple[str, str | None]], problem: str | None = None
) -> str | None:
    """Return the notice that data is recorded or simulated, by source and driver version."""
    kinds = {
        (source, source == "simulate" or (driver == _SIMULATED and source == "replay"))
        for source, driver in identities
    }
    said = [
        _SAID.get(each, f"Not real GPUs. This data comes from {cut(each[0], LONG)}.")
        for each in sorted(kinds)
    ]
    ended = recording_ended(problem)
    if ended is not None:
        said.append(f"{capitalised(ended)}.")
    return " ".join(filter(None, said)) or None
