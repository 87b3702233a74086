# SPDX-License-Identifier: Apache-2.0
"""Reads messages in protobuf's wire format: their fields by number, as far as asked for."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Types of a field on the wire; the two others are of groups, which nobody writes any more."""

MOST_FIELDS = 1_000_000
"""In one answer, those of nested messages included: some seconds of work."""
MOST_VARINT_BYTES = 10
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}


class Malformed(Exception):
    """It is no message; says why."""


class Budget:
    """How many fields may still be read, over all messages of one answer."""

    __slots__ = ("left",)

    def __init__(self, fields: int = MOST_FIELDS) -> None:
        self.left = fields


def fields(message: memoryview, budget: Budget) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field, in their order.

    The value of a varint is an int, that of a string, of bytes or of a message is what it is
    encoded as. Fields of fixed length are passed over: no message that is read here has any.

    Raises:
        Malformed: it is cut off, has a field that cannot be, or the budget is used up.
    """
    at, end = 0, len(message)
    while at < end:
        budget.left -= 1
        if budget.left < 0:
            raise Malformed("it has too many fields")
        tag = message[at]
        at += 1
        if tag & 0x80:
            tag, at = _varint(message, at - 1)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise Malformed(f"there is no field {number}")
        if kind == BYTES:
            length, at = _varint(message, at)
            if length > end - at:
                raise Malformed("a field is cut off")
            yield number, message[at : at + length]
            at += length
        elif kind == VARINT:
            value, at = _varint(message, at)
            yield number, value
        elif kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
            if at > end:
                raise Malformed("a field is cut off")
        else:
            raise Malformed(f"a field has the type {kind}")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return a number and where what follows it begins."""
    value = 0
    for count, byte in enumerate(message[at : at + MOST_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + count + 1
    raise Malformed("a number is cut off or too long")


def text(value: int | memoryview, most: int) -> str:
    """Return a string, at most so many characters of it.

    Raises:
        Malformed: it is a number.
    """
    return bytes(nested(value)[: 4 * most]).decode("utf-8", "replace")[:most]


def nested(value: int | memoryview) -> memoryview:
    """Return the bytes of a field that has a length: a message in a message.

    Raises:
        Malformed: it is a number.
    """
    if isinstance(value, int):
        raise Malformed("a number stands where a text or a message was expected")
    return value
