# SPDX-License-Identifier: Apache-2.0
"""From JSON back to these types, without the framework: for a client that starts fast."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import lru_cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from exporter.errors import clipped
from exporter.web.api.models.json import Json, json_name

T = TypeVar("T", bound=Json)


class UnexpectedError(ValueError):
    """Something in the JSON is not as expected; the text names the key and what was expected."""

    def __init__(self, key: str, expected: str, value: object) -> None:
        got = clipped(json.dumps(value))
        super().__init__(f"{key}: expected {expected}, got {got}".removeprefix(": "))


def read(kind: type[T], value: object) -> T:
    """Return parsed JSON as one of these types; members that the type lacks are left out.

    Lists and mappings that are missing are empty: an older daemon knows of nothing in them.

    Raises:
        UnexpectedError: something else is missing, or something is of another type.
    """
    return _object(kind, value, "")


def _value(kind: Any, value: object, key: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, Json):
        return _object(kind, value, key)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list:
        if not isinstance(value, list):
            raise UnexpectedError(key, "a list", value)
        return [_value(inner[0], each, f"{key}[{at}]") for at, each in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise UnexpectedError(key, "an object", value)
        return {name: _value(inner[1], each, f"{key}.{name}") for name, each in value.items()}
    if NoneType in inner:
        return None if value is None else _value(inner[0], value, key)
    return _scalar(kind, value, key)


def _object(kind: Callable[..., T], value: object, key: str) -> T:
    if not isinstance(value, dict):
        raise UnexpectedError(key, "an object", value)
    found = {}
    for name, inner, required in _members(kind):
        shown = json_name(name)
        if shown in value:
            found[name] = _value(inner, value[shown], f"{key}.{shown}".removeprefix("."))
        elif get_origin(inner) in (list, dict):
            found[name] = get_origin(inner)()
        elif required:
            raise UnexpectedError(key, f"the key {shown!r}", value)
    return kind(**found)


@lru_cache
def _members(kind: Any) -> list[tuple[str, Any, bool]]:
    """Return name and type of each field, and whether it must be there."""
    hints = get_type_hints(kind)
    return [(each.name, hints[each.name], each.default is MISSING) for each in fields(kind)]


_SCALARS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
}


def _scalar(kind: type, value: object, key: str) -> Any:
    accepted, expected = _SCALARS[kind]
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise UnexpectedError(key, expected, value)
    try:
        found = kind(value)
    except OverflowError:
        raise UnexpectedError(key, expected, value) from None
    if isinstance(found, float) and not math.isfinite(found):
        raise UnexpectedError(key, expected, value)
    return found
