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
from exporter.sources.recording.lines import STRICT, InvalidLine, decode, encode

FORMAT = "roofline-exporter-recording"
VERSION = 3


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

    @property
    def started_unix_seconds(self) -> float:
        """When it began, as Unix time."""
        return datetime.fromisoformat(self.started).timestamp()


def iso_time(unix_seconds: float) -> str:
    """Return a time in UTC as a header has it."""
    return datetime.fromtimestamp(unix_seconds, timezone.utc).isoformat()


def header_line(header: Header) -> bytes:
    """Return the line that stands for a header."""
    plain = {"format": FORMAT, "version": VERSION, **json.loads(encode(header))}
    return json.dumps(plain, separators=(",", ":")).encode() + b"\n"


def read_header(line: bytes) -> Header:
    """Return the header that the first line stands for.

    Raises:
        InvalidLine: it is not the header of a recording that this version can play.
    """
    check_line(line)
    try:
        plain = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidLine("", "a line of JSON") from None
    if not isinstance(plain, dict) or plain.pop("format", None) != FORMAT:
        raise InvalidLine("format", f'"{FORMAT}"')
    if plain.pop("version", None) != VERSION:
        raise InvalidLine("version", f"{VERSION}, which this exporter can play")
    header = decode(Header, json.dumps(plain).encode())
    weight(header, "header")
    try:
        has_offset = datetime.fromisoformat(header.started).utcoffset() is not None
    except ValueError:
        has_offset = False
    if not has_offset:
        raise InvalidLine("started", "a time such as 2026-01-31T12:00:00+00:00")
    return header
