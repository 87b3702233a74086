# SPDX-License-Identifier: Apache-2.0
"""Frozen data classes as plain JSON and back, by their fields alone; nothing is listed twice.

A field that has its default is left out, and so is a float that is no number. A whole number stands
for a float of that value, every other float is written with all its digits, so decoding gives back
exactly what was encoded.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, Union

T = TypeVar("T")
Decode = Callable[[Any], Any]

EXACT_INTEGERS = 2.0**53
LARGEST_INTEGER = 2**64
_UNIONS = (Union, types.UnionType)


class Malformed(Exception):
    """A plain value is not what its field takes; names the field and what was expected."""

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(f"{path}: expected {expected}" if path else f"expected {expected}")
        self.path = path
        self.expected = expected

    def below(self, name: object) -> Malformed:
        """Return the same, seen from one level up."""
        separator = "." if self.path and not self.path.startswith("[") else ""
        return Malformed(f"{name}{separator}{self.path}", self.expected)


# From data classes to plain values.


_FIELDS: dict[Any, tuple[tuple[str, Any], ...]] = {}


def stored_fields(cls: Any) -> tuple[tuple[str, Any], ...]:
    """Return the name and default of each field; without a default, a value equal to nothing."""
    known = _FIELDS.get(cls)
    if known is None:
        fields = dataclasses.fields(cls)
        known = _FIELDS[cls] = tuple([(field.name, _default(field)) for field in fields])
    return known


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return object()


def number(value: float) -> float:
    """Return a float as it is written: the integer of the same value where that is shorter."""
    if -EXACT_INTEGERS < value < EXACT_INTEGERS:
        whole = int(value)
        if whole == value and (whole or str(value)[0] != "-"):
            return whole
    return value


def is_known(value: Any) -> bool:
    """Return whether JSON can say it: infinity and what is no number cannot be said."""
    return type(value) is not float or value - value == 0


def to_plain(value: Any) -> Any:
    """Return dicts, lists, strings, numbers, booleans and None that stand for `value`."""
    kind = type(value)
    if kind is float:
        return number(value)
    if kind in (int, str, bool, types.NoneType):
        return value
    if dataclasses.is_dataclass(kind):
        found = ((name, default, getattr(value, name)) for name, default in stored_fields(kind))
        return {
            name: to_plain(item)
            for name, default, item in found
            if item != default and is_known(item)
        }
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items() if is_known(item)}
    if isinstance(value, frozenset):
        return sorted(to_plain(item) for item in value)
    return [to_plain(item) for item in value]


# From plain values to data classes.


@cache
def decoder(hint: Any) -> Decode:
    """Return the function that turns a plain value into one of this type; it raises Malformed."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in _UNIONS:
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return _optional(decoder(inner))
    if origin is tuple and arguments[-1] is Ellipsis:
        return _sequence(decoder(arguments[0]), tuple)
    if origin is tuple:
        return _fixed([decoder(argument) for argument in arguments])
    if origin is frozenset:
        return _sequence(decoder(arguments[0]), frozenset)
    if origin is not None:
        return _mapping(_key_decoder(arguments[0]), decoder(arguments[1]))
    return _data_class(hint)


def from_plain(cls: type[T], plain: Any) -> T:
    """Return the data class that `plain` stands for.

    Raises:
        Malformed: it does not stand for one.
    """
    hint: Any = cls
    value: T = decoder(hint)(plain)
    return value


def text(plain: Any) -> str:
    """Return a string that can be written as UTF-8."""
    if isinstance(plain, str) and (plain.isascii() or _is_encodable(plain)):
        return plain
    raise Malformed("", "text")


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def whole_number(plain: Any) -> int:
    """Return an integer that fits into 64 bits."""
    if type(plain) is int and -LARGEST_INTEGER < plain < LARGEST_INTEGER:
        return plain
    raise Malformed("", "a whole number")


def _float(plain: Any) -> float:
    if type(plain) is float and plain - plain == 0:
        return plain
    if type(plain) is int and -LARGEST_INTEGER < plain < LARGEST_INTEGER:
        return float(plain)
    raise Malformed("", "a number")


def _boolean(plain: Any) -> bool:
    if plain is True or plain is False:
        return bool(plain)
    raise Malformed("", "true or false")


_SIMPLE: Mapping[Any, Decode] = {
    int: whole_number,
    float: _float,
    str: text,
    bool: _boolean,
}


def _optional(decode: Decode) -> Decode:
    return lambda plain: None if plain is None else decode(plain)


def _sequence(decode: Decode, make: Callable[[Iterable[Any]], Any]) -> Decode:
    def decode_items(plain: Any) -> Any:
        if not isinstance(plain, list):
            raise Malformed("", "a list")
        return make(_item(decode, position, item) for position, item in enumerate(plain))

    return decode_items


def _fixed(decoders: list[Decode]) -> Decode:
    def decode_items(plain: Any) -> Any:
        if not isinstance(plain, list) or len(plain) != len(decoders):
            raise Malformed("", f"a list of {len(decoders)}")
        return tuple(
            _item(decode, position, item)
            for position, (decode, item) in enumerate(zip(decoders, plain, strict=True))
        )

    return decode_items


def _item(decode: Decode, position: int, plain: Any) -> Any:
    try:
        return decode(plain)
    except Malformed as error:
        raise error.below(f"[{position}]") from None


def _key_decoder(hint: Any) -> Callable[[str], Any]:
    if hint is str:
        return text

    def decode(key: str) -> int:
        if key.isascii() and key.isdecimal() and len(key) <= 10:
            return int(key)
        raise Malformed("", "whole numbers as keys")

    return decode


def _mapping(decode_key: Callable[[str], Any], decode: Decode) -> Decode:
    def decode_items(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise Malformed("", "an object")
        result = {}
        for key, item in plain.items():
            decoded_key = decode_key(key)
            try:
                result[decoded_key] = decode(item)
            except Malformed as error:
                raise error.below(key) from None
        return result

    return decode_items


def _data_class(cls: Any) -> Decode:
    hints = typing.get_type_hints(cls)
    decoders = {field.name: decoder(hints[field.name]) for field in dataclasses.fields(cls)}
    required = [
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]

    def decode(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise Malformed("", "an object")
        arguments = {}
        for name, item in plain.items():
            decode_field = decoders.get(name)
            if decode_field is None:
                raise Malformed(ascii(name)[1:-1][:40], "a field that this version knows")
            try:
                arguments[name] = decode_field(item)
            except Malformed as error:
                raise error.below(name) from None
        for name in required:
            if name not in arguments:
                raise Malformed(name, "a value, found none")
        return cls(**arguments)

    return decode
