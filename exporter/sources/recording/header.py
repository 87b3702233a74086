# SPDX-License-Identifier: Apache-2.0
"""The first line of a recording: what it is, what made it, and of which GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from exporter.sources.recording.codec import Malformed, from_plain, to_plain

FORMAT = "roofline-exporter-recording"
VERSION = 1
SHORTEST_INTERVAL_SECONDS = 0.01
LONGEST_INTERVAL_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class RecordedDevice:
    """One GPU that answered when the recording began."""

    index: int
    uuid: str
    name: str


@dataclass(frozen=True, slots=True)
class Header:
    """What holds for the whole recording."""

    exporter: str
    """The version of the exporter that recorded."""
    source: str
    """Where its readings came from: nvml or simulate."""
    interval_seconds: float
    """Between two ticks."""
    started: str
    """When it began, as an ISO 8601 time with its offset from UTC."""
    driver: str | None = None
    """The version of the NVIDIA driver."""
    devices: tuple[RecordedDevice, ...] = ()
    specs: Mapping[str, str] = field(default_factory=dict)
    """By UUID: the product key whose ceilings held, or ``derived``."""

    @property
    def started_unix_seconds(self) -> float:
        """When it began, as Unix time."""
        return datetime.fromisoformat(self.started).timestamp()

    def line(self) -> bytes:
        """Return the line that stands for this header."""
        plain = {"format": FORMAT, "version": VERSION, **to_plain(self)}
        return json.dumps(plain, separators=(",", ":")).encode() + b"\n"


def iso_time(unix_seconds: float) -> str:
    """Return a time in UTC as a header has it."""
    return datetime.fromtimestamp(unix_seconds, timezone.utc).isoformat()


def parse_header(plain: Any) -> Header:
    """Return the header that the first line stands for.

    Raises:
        Malformed: it is not the header of a recording that this version can play.
    """
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise Malformed("format", f'"{FORMAT}"')
    rest = dict(plain)
    del rest["format"]
    version = rest.pop("version", None)
    if type(version) is not int or version != VERSION:
        raise Malformed("version", f"{VERSION}, the one that this exporter can play")
    header = from_plain(Header, rest)
    if not SHORTEST_INTERVAL_SECONDS <= header.interval_seconds <= LONGEST_INTERVAL_SECONDS:
        raise Malformed(
            "interval_seconds",
            f"seconds from {SHORTEST_INTERVAL_SECONDS:g} to {LONGEST_INTERVAL_SECONDS:g}",
        )
    try:
        offset = datetime.fromisoformat(header.started).utcoffset()
        is_time = offset is not None and header.started_unix_seconds >= 0
    except (ValueError, OverflowError):
        is_time = False
    if not is_time:
        raise Malformed("started", "a time such as 2026-01-31T12:00:00+00:00")
    return header
