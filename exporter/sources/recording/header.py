# SPDX-License-Identifier: Apache-2.0
"""The first line of a recording: what it is, what made it, and of which GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from exporter.sources.recording.bounds import check_line, weight
from exporter.sources.recording.lines import STRICT, Malformed, decode, encode

FORMAT = "roofline-exporter-recording"
VERSION = 3
PLAYABLE = (2, VERSION)
"""Version 2 called the class of a process otherwise, and knew no workloads."""


@dataclass(frozen=True, slots=True)
class RecordedDevice:
    """One GPU that answered when the recording began."""

    index: int
    uuid: str
    name: str


@dataclass(frozen=True, slots=True)
class Header:
    """What holds for the whole recording."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    exporter: str
    """The version of the exporter that recorded."""
    source: str
    """Where its readings came from: nvml or simulate."""
    interval_seconds: Annotated[float, Field(ge=0.01, le=3600)]
    """Between two ticks."""
    started: str
    """When it began, as an ISO 8601 time with its offset from UTC."""
    driver: str | None = None
    """The version of the NVIDIA driver."""
    devices: tuple[RecordedDevice, ...] = ()
    specs: Mapping[str, str] = field(default_factory=dict)
    """By UUID: the row of the spec file whose peaks held, or ``derived``."""
    version: int = VERSION
    """Of the format."""

    @property
    def started_unix_seconds(self) -> float:
        """When it began, as Unix time."""
        return datetime.fromisoformat(self.started).timestamp()


def iso_time(unix_seconds: float) -> str:
    """Return a time in UTC as a header has it."""
    return datetime.fromtimestamp(unix_seconds, timezone.utc).isoformat()


def header_line(header: Header) -> bytes:
    """Return the line that stands for a header."""
    plain = {"format": FORMAT, "version": header.version, **json.loads(encode(header))}
    return json.dumps(plain, separators=(",", ":")).encode() + b"\n"


def read_header(line: bytes) -> Header:
    """Return the header that the first line stands for.

    Raises:
        Malformed: it is not the header of a recording that this version can play.
    """
    check_line(line)
    try:
        plain = json.loads(line)
    except (ValueError, RecursionError):
        raise Malformed("", "a line of JSON") from None
    if not isinstance(plain, dict) or plain.pop("format", None) != FORMAT:
        raise Malformed("format", f'"{FORMAT}"')
    if plain.get("version") not in PLAYABLE:
        expected = " or ".join(map(str, PLAYABLE))
        raise Malformed("version", f"{expected}, which this exporter can play")
    header = decode(Header, json.dumps(plain).encode())
    weight(header, "header")
    try:
        offset = datetime.fromisoformat(header.started).utcoffset()
        is_time = offset is not None and header.started_unix_seconds >= 0
    except (ValueError, OverflowError):
        is_time = False
    if not is_time:
        raise Malformed("started", "a time such as 2026-01-31T12:00:00+00:00")
    return header
