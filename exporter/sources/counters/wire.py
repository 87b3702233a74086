# SPDX-License-Identifier: Apache-2.0
"""What a child process writes, and how the exporter reads it.

The child writes one of these objects per line:

* ``{"beat": N}``: it is alive; at least once a second
* ``{"hello": {fact: text}}``: what it runs on (versions), once
* ``{"gpu": UUID, "gpu_instance": null | N, "seconds": S, "ratios": {name: 0..}, "bytes": {name:
  0..}, "age_seconds": null | A}``: an activity; the names are those of `Activity`
* ``{"gpu": UUID | null, "gpu_instance": null | N, "state": STATE, "message": text}``: why readings
  are absent, of one share, one GPU or (null) all; the state ``ok`` ends it
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.errors import one_line
from exporter.model.reading import ACTIVITY_BYTES, ACTIVITY_RATIOS, Activity

OK = "ok"
UNREACHABLE = "unreachable"
PAUSED = "paused"
HIGHEST_RATIO = 2.0
"""A mean over cycles lies a little above 1 at times, and DCGM's of a GPU instance more."""
HIGHEST_BYTES = 1e18
LONGEST_TEXT = 500
LONGEST_LINE_BYTES = 65_536


class MalformedLine(ValueError):
    """A line is no valid message; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The child is alive."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What the child runs on."""

    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Measured:
    """An activity of one share."""

    gpu: str
    gpu_instance: int | None
    activity: Activity


@dataclass(frozen=True, slots=True)
class Noted:
    """Why readings are absent, or that they are not (`OK`)."""

    gpu: str | None
    """Its UUID; None: every GPU."""
    gpu_instance: int | None
    state: str
    message: str


Message = Beat | Hello | Measured | Noted


def encoded(message: Mapping[str, Any]) -> bytes:
    """Return the line of a message, with its end."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decoded(line: bytes) -> dict[str, Any]:
    """Return the object in a line.

    Raises:
        MalformedLine: there is none.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedLine(f"is no JSON: {type(error).__name__}") from error
    if not isinstance(found, dict):
        raise MalformedLine("is no object")
    return found


def parsed(line: bytes, source: str) -> Message:
    """Return the message in a line; `source` is the name that its activities get.

    Raises:
        MalformedLine: it is none of the messages, or the library's numbers are impossible.
    """
    found = decoded(line)
    try:
        if "beat" in found:
            return Beat()
        if "hello" in found:
            return Hello({name: _text(fact) for name, fact in found["hello"].items()})
        gpu, instance = found["gpu"], found.get("gpu_instance")
        if "state" in found:
            return Noted(gpu, instance, found["state"], _text(found.get("message", "")))
        return Measured(gpu, instance, _activity(found, source))
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise MalformedLine("is none of the messages") from error


class Lines:
    """Cuts what arrives into lines; one that is too long is dropped as it arrives."""

    def __init__(self, longest_bytes: int = LONGEST_LINE_BYTES) -> None:
        self._longest = longest_bytes
        self._partial = b""
        self._skipping = False
        """Whether the present line is too long."""
        self.dropped_total = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, without their ends."""
        *complete, rest = data.split(b"\n")
        found: list[bytes] = []
        for line in complete:
            if not self._skipping and len(self._partial) + len(line) <= self._longest:
                found.append(self._partial + line)
            else:
                self.dropped_total += 1
            self._partial, self._skipping = b"", False
        if self._skipping or len(self._partial) + len(rest) > self._longest:
            self._partial, self._skipping = b"", True
        else:
            self._partial += rest
        return found


def _activity(found: Mapping[str, Any], source: str) -> Activity:
    ratios, byte_counts = found.get("ratios", {}), found.get("bytes", {})
    if not (ratios.keys() <= ACTIVITY_RATIOS and byte_counts.keys() <= ACTIVITY_BYTES):
        raise MalformedLine("has a value that is not known")
    limits = [(value, HIGHEST_RATIO) for value in ratios.values()]
    limits += [(value, HIGHEST_BYTES) for value in byte_counts.values()]
    if not all(0 <= value <= highest for value, highest in limits) or found["seconds"] <= 0:
        raise MalformedLine("has a number that is impossible")
    values = {name: float(value) for name, value in {**ratios, **byte_counts}.items()}
    return Activity(source, float(found["seconds"]), age_seconds=found.get("age_seconds"), **values)


def _text(value: str) -> str:
    return one_line(value[:LONGEST_TEXT])
