# SPDX-License-Identifier: Apache-2.0
"""Reads messages in protobuf's wire format: their fields by number, as far as asked for."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Types of a field on the wire; the two others are of groups, which nobody writes any more."""

MOST_FIELDS = 200_000
"""Of one message: some ten megabytes while it is read."""
MOST_TEXT = 253
"""Characters, unless it is said otherwise: what Kubernetes allows for the name of a pod."""
MOST_VARINT_BYTES = 10
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}


class Malformed(Exception):
    """It is no message; says why."""


class Message:
    """The fields of one message by their numbers; messages in it are read when asked for."""

    def __init__(self, data: bytes | memoryview) -> None:
        """Raise Malformed if it is no message."""
        self._fields: dict[int, list[int | memoryview]] = {}
        for number, value in fields(memoryview(data)):
            self._fields.setdefault(number, []).append(value)

    def each(self, number: int) -> Iterator[Message]:
        """Yield the messages of a field that may be repeated."""
        return map(Message, self._nested(number))

    def one(self, number: int) -> Message:
        """Return the message of a field, without fields if there is none."""
        return Message(b"".join(self._nested(number)))

    def texts(self, number: int, most: int = MOST_TEXT) -> list[str]:
        """Return the strings of a field, at most so many characters of each."""
        return [text(value, most) for value in self._nested(number)]

    def text(self, number: int, most: int = MOST_TEXT) -> str:
        """Return the string of a field, empty if there is none."""
        return next(reversed(self.texts(number, most)), "")

    def _nested(self, number: int) -> list[memoryview]:
        found = self._fields.get(number, [])
        nested = [value for value in found if not isinstance(value, int)]
        if len(nested) < len(found):
            raise Malformed("a number stands where a text or a message was expected")
        return nested


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field, in their order.

    The value of a varint is an int, that of a string, of bytes or of a message is what it is
    encoded as. Fields of fixed length are passed over: no message that is read here has any.

    Raises:
        Malformed: it is cut off, has a field that cannot be, or more than MOST_FIELDS.
    """
    at, end, left = 0, len(message), MOST_FIELDS
    while at < end:
        left -= 1
        if left < 0:
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


def text(value: memoryview, most: int) -> str:
    """Return a string, at most so many characters of it."""
    return bytes(value[: 4 * most]).decode("utf-8", "replace")[:most]
