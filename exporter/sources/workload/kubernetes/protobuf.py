# SPDX-License-Identifier: Apache-2.0
"""A reader of protobuf's wire format: the texts and messages in a message, by field number."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Types of a field on the wire; the two others are of groups, which are obsolete."""
_LONGEST_VARINT_BYTES = 10
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}


class NotProtobuf(Exception):
    """The bytes are no message; says why."""


class Message:
    """The fields of one message, without numbers: none that is read here is of use."""

    def __init__(self, data: bytes) -> None:
        """Raise NotProtobuf if it is no message."""
        self._fields: dict[int, list[bytes]] = {}
        at = 0
        while at < len(data):
            tag, at = _varint(data, at)
            kind = tag & 7
            if kind == VARINT:
                _, at = _varint(data, at)
                continue
            if kind == BYTES:
                size, at = _varint(data, at)
            elif kind in _FIXED_BYTES:
                size = _FIXED_BYTES[kind]
            else:
                raise NotProtobuf(f"a field has the type {kind}")
            if size > len(data) - at:
                raise NotProtobuf("a field is cut off")
            if kind == BYTES:
                self._fields.setdefault(tag >> 3, []).append(data[at : at + size])
            at += size

    def each(self, number: int) -> Iterator[Message]:
        """Yield the messages of a repeated field."""
        return map(Message, self._fields.get(number, ()))

    def one(self, number: int) -> Message:
        """Return the message of a field, without fields if there is none."""
        return Message(b"".join(self._fields.get(number, ())))

    def texts(self, number: int) -> list[str]:
        """Return the strings of a repeated field."""
        return [value.decode("utf-8", "replace") for value in self._fields.get(number, ())]

    def text(self, number: int) -> str:
        """Return the string of a field, empty if there is none."""
        return next(reversed(self.texts(number)), "")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position behind it."""
    value = 0
    for count, byte in enumerate(data[at : at + _LONGEST_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, at + count + 1
    raise NotProtobuf("a number is cut off or too long")
