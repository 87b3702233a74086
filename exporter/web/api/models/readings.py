# SPDX-License-Identifier: Apache-2.0
"""The readings of one GPU: which there are, from where, and how old."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.web.api.models.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingJson(Json):
    """One group of readings of a GPU, or of one of its GPU instances."""

    reading: str
    """Such as power, memory, ecc or activity."""
    gpu_instance: int | None = None
    """Absent where it is of the board, or of the whole GPU."""
    state: str
    """ok, the state of roofline_exporter_reading_state, or no_answer where nobody says why."""
    source: str | None = None
    """Who gives it, or should."""
    age_seconds: float | None = None
    """How old it was at the time of the snapshot; absent where there is none."""
