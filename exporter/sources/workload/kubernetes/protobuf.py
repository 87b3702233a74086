# SPDX-License-Identifier: Apache-2.0
"""A reader of protobuf's wire format: fields by number."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Types of a field on the wire; the two others are of groups, which are obsolete."""
LONGEST_TEXT = 253
"""Characters: what Kubernetes allows for the name of a pod."""
_LONGEST_VARINT_BYTES = 10
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}


class NotProtobuf(Exception):
    """The bytes are no message; says why."""


class Message:
    """The fields of one message by their numbers; nested messages are decoded on demand."""

    def __init__(self, data: bytes | memoryview) -> None:
        """Raise NotProtobuf if it is no message."""
        self._fields: dict[int, list[int | memoryview]] = {}
        for number, value in fields(memoryview(data)):
            self._fields.setdefault(number, []).append(value)

    def each(self, number: int) -> Iterator[Message]:
        """Yield the messages of a repeated field."""
        return map(Message, self._bytes(number))

    def one(self, number: int) -> Message:
        """Return the message of a field, without fields if there is none."""
        return Message(b"".join(self._bytes(number)))

    def texts(self, number: int, most: int = LONGEST_TEXT) -> list[str]:
        """Return the strings of a field, at most so many characters of each."""
        return [text(value, most) for value in self._bytes(number)]

    def text(self, number: int, most: int = LONGEST_TEXT) -> str:
        """Return the string of a field, empty if there is none."""
        return next(reversed(self.texts(number, most)), "")

    def _bytes(self, number: int) -> list[memoryview]:
        found = self._fields.get(number, [])
        nested = [value for value in found if not isinstance(value, int)]
        if len(nested) < len(found):
            raise NotProtobuf("a number stands where a text or a message was expected")
        return nested


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field: an int (varint), or the encoded bytes.

    Fields of fixed length are skipped: no message that is read here has one of use.

    Raises:
        NotProtobuf: it is cut off, or has a field that cannot be.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise NotProtobuf(f"there is no field {number}")
        if kind == VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == BYTES:
            length, at = _varint(message, at)
        elif kind in _FIXED_BYTES:
            length = _FIXED_BYTES[kind]
        else:
            raise NotProtobuf(f"a field has the type {kind}")
        if length > end - at:
            raise NotProtobuf("a field is cut off")
        if kind == BYTES:
            yield number, message[at : at + length]
        at += length


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return a number and the position behind it."""
    value = 0
    for count, byte in enumerate(message[at : at + _LONGEST_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + count + 1
    raise NotProtobuf("a number is cut off or too long")


def text(value: memoryview, most: int) -> str:
    """Return a string, at most so many characters of it."""
    return bytes(value[: 4 * most]).decode("utf-8", "replace")[:most]
