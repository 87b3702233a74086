# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses as lines of JSON and back, by their fields alone.

A field that has its default is left out. JSON has no infinity and no NaN: both are written as null.
Lines that are read may come from anyone: unknown keys, wrong types and absurd numbers are refused.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

T = TypeVar("T")

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""The ``__pydantic_config__`` of a class that is written as a line, and of all classes in it."""

_OVERFLOWING = re.compile(rb"[0-9]{300}")
"""An integer of so many digits is too large for a float."""
_EXPECTED = {
    "json_invalid": "a line of JSON",
    "missing": "a value, found none",
    "too_long": "fewer items",
    "unexpected_keyword_argument": "a field that this version knows",
}
"""By pydantic's name of the error."""
_LONGEST_KEY = 40


class InvalidLine(Exception):
    """A line is invalid; names the key and what was expected there."""

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(f"{path}: expected {expected}" if path else f"expected {expected}")


def encode(value: Any) -> bytes:
    """Return the line for a dataclass."""
    cls: Any = type(value)
    return _adapter(cls).dump_json(value, exclude_defaults=True, warnings=False) + b"\n"


def decode(cls: type[T], line: bytes) -> T:
    """Return the dataclass in a line.

    Raises:
        InvalidLine: the line does not match its fields.
    """
    if _OVERFLOWING.search(line):
        raise InvalidLine("", "numbers of fewer than 300 digits")
    hint: Any = cls
    try:
        value: T = _adapter(hint).validate_json(line)
    except ValidationError as error:
        raise _invalid_line(error) from None
    return value


@cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def _invalid_line(error: ValidationError) -> InvalidLine:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = ""
    for part in first["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]":
            path += "." * bool(path) + ascii(part)[1:-1][:_LONGEST_KEY]
    expected = _EXPECTED.get(first["type"]) or first["msg"].removeprefix("Input should be ")
    return InvalidLine(path, expected)
