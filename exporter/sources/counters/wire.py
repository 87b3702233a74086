# SPDX-License-Identifier: Apache-2.0
"""What a child may write, checked: a library may print into it, and a fault may write anything.

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
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from exporter.errors import one_line
from exporter.model.reading import Activity

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
HIGHEST_INSTANCE = 1 << 16
LONGEST_UUID = 96
LONGEST_TEXT = 500
MOST_FACTS = 32

BYTES = frozenset(field.name for field in fields(Activity) if field.name.endswith("_bytes"))
RATIOS = (
    frozenset(field.name for field in fields(Activity))
    - BYTES
    - {"source", "seconds", "elapsed_cycles", "age_seconds", "unseen_seconds"}
)


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
    if "beat" in found:
        _only(found, {"beat"})
        return Beat()
    if "hello" in found:
        _only(found, {"hello"})
        return Hello(_facts(found["hello"]))
    if "state" in found:
        _only(found, {"gpu", "gpu_instance", "state", "message"})
        return _noted(found)
    _only(found, {"gpu", "gpu_instance", "seconds", "ratios", "bytes", "age_seconds"})
    return _counted(found, source)


def _noted(found: Mapping[str, Any]) -> Noted:
    state = found["state"]
    if not isinstance(state, str) or state not in STATES:
        raise Malformed("has a state that is not known")
    gpu = found.get("gpu")
    return Noted(
        None if gpu is None else _uuid(gpu),
        _instance(found.get("gpu_instance")),
        state,
        _text(found.get("message", "")),
    )


def _counted(found: Mapping[str, Any], source: str) -> Counted:
    seconds = _number(found.get("seconds"), LONGEST_SECONDS)
    if seconds <= 0:
        raise Malformed("covers no time")
    age = found.get("age_seconds")
    values = {
        **_numbers(found.get("ratios", {}), RATIOS, HIGHEST_RATIO),
        **_numbers(found.get("bytes", {}), BYTES, HIGHEST_BYTES),
    }
    return Counted(
        _uuid(found.get("gpu")),
        _instance(found.get("gpu_instance")),
        Activity(
            source,
            seconds,
            age_seconds=None if age is None else _number(age, math.inf),
            **values,
        ),
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _only(found: Mapping[str, Any], keys: set[str]) -> None:
    if not found.keys() <= keys:
        raise Malformed("has a key that is not known")


def _number(value: object, highest: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed("has a value that is no number")
    if not 0 <= value <= highest or math.isinf(value):
        raise Malformed("has a number that is impossible")
    return float(value)


def _numbers(values: object, names: frozenset[str], highest: float) -> dict[str, float]:
    if not isinstance(values, dict) or not values.keys() <= names:
        raise Malformed("has a value that is not known")
    return {name: _number(value, highest) for name, value in values.items()}


def _uuid(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_UUID or not value.isascii():
        raise Malformed("has a UUID that is none")
    return value


def _instance(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < HIGHEST_INSTANCE:
        raise Malformed("has a GPU instance that is none")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Malformed("has a text that is none")
    return one_line(value[:LONGEST_TEXT])


def _facts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MOST_FACTS:
        raise Malformed("has facts that are none")
    return {_text(name): _text(fact) for name, fact in value.items()}
