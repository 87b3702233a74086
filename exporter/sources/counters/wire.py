# SPDX-License-Identifier: Apache-2.0
"""What a child writes, and how it is read: it is our own, but its numbers are a library's.

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
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from exporter.errors import one_line
from exporter.model.reading import ACTIVITY_BYTES, ACTIVITY_RATIOS, Activity

OK = "ok"
UNREACHABLE = "unreachable"
PAUSED = "paused"
STATES = frozenset(
    {
        *(OK, UNREACHABLE, PAUSED, "missing", "busy", "no_permission", "unsupported"),
        *("old_driver", "implausible", "mig", "disabled", "suspended"),
    }
)
HIGHEST_RATIO = 2.0
"""A mean over cycles lies a little above 1 at times, and DCGM's of a GPU instance more."""
HIGHEST_BYTES = 1e18
LONGEST_SECONDS = 3600.0
LONGEST_TEXT = 500
LONGEST_LINE_BYTES = 65_536


class Malformed(ValueError):
    """A line is none of the messages; its text says why."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The child is alive."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What the child runs on."""

    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Counted:
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


Message = Beat | Hello | Counted | Noted


def encoded(message: Mapping[str, Any]) -> bytes:
    """Return the line of a message, with its end."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decoded(line: bytes) -> dict[str, Any]:
    """Return the object in a line.

    Raises:
        Malformed: there is none.
    """
    try:
        found = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"is no JSON: {type(error).__name__}") from error
    if not isinstance(found, dict):
        raise Malformed("is no object")
    return found


def parsed(line: bytes, source: str) -> Message:
    """Return what a child says in a line; `source` is the name that its activities get.

    Raises:
        Malformed: it says nothing that is known, or something impossible.
    """
    found = decoded(line)
    try:
        if "beat" in found:
            return Beat()
        if "hello" in found:
            return Hello({name: _text(fact) for name, fact in found["hello"].items()})
        if "state" in found:
            return _noted(found)
        return _counted(found, source)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise Malformed("is none of the messages") from error


class Lines:
    """Cuts what arrives into lines; one that is too long is dropped as it arrives."""

    def __init__(self, longest_bytes: int = LONGEST_LINE_BYTES) -> None:
        self._longest = longest_bytes
        self._begun = b""
        self._skipping = False
        """Whether the line that has begun is too long."""
        self.dropped_total = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, without their ends."""
        *complete, rest = data.split(b"\n")
        found: list[bytes] = []
        for line in complete:
            if not self._skipping and len(self._begun) + len(line) <= self._longest:
                found.append(self._begun + line)
            else:
                self.dropped_total += 1
            self._begun, self._skipping = b"", False
        if self._skipping or len(self._begun) + len(rest) > self._longest:
            self._begun, self._skipping = b"", True
        else:
            self._begun += rest
        return found


def _noted(found: Mapping[str, Any]) -> Noted:
    if found["state"] not in STATES:
        raise Malformed("has a state that is not known")
    instance, message = found.get("gpu_instance"), _text(found.get("message", ""))
    return Noted(found["gpu"], instance, found["state"], message)


def _counted(found: Mapping[str, Any], source: str) -> Counted:
    seconds, age = _number(found["seconds"], LONGEST_SECONDS), found.get("age_seconds")
    if seconds <= 0:
        raise Malformed("covers no time")
    values = {
        **_numbers(found.get("ratios", {}), ACTIVITY_RATIOS, HIGHEST_RATIO),
        **_numbers(found.get("bytes", {}), ACTIVITY_BYTES, HIGHEST_BYTES),
    }
    age_seconds = None if age is None else _number(age, math.inf)
    activity = Activity(source, seconds, age_seconds=age_seconds, **values)
    return Counted(found["gpu"], found.get("gpu_instance"), activity)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _number(value: float, highest: float) -> float:
    if not 0 <= value <= highest or math.isinf(value):
        raise Malformed("has a number that is impossible")
    return float(value)


def _numbers(
    values: Mapping[str, float], names: frozenset[str], highest: float
) -> dict[str, float]:
    if not values.keys() <= names:
        raise Malformed("has a value that is not known")
    return {name: _number(value, highest) for name, value in values.items()}


def _text(value: str) -> str:
    return one_line(value[:LONGEST_TEXT])
