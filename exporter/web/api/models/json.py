# SPDX-License-Identifier: Apache-2.0
"""What all types of the API have in common: how they are made from the snapshot, and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import lru_cache
from math import isfinite
from types import NoneType
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from exporter.web.api import SCHEMA_VERSION

NAMES = {"work_class": "class"}
"""How fields are called in the JSON that cannot be called so in Python."""


def json_name(field: str) -> str:
    """Return how a field is called in the JSON."""
    return NAMES.get(field, field)


class Json:
    """An object of the JSON, a plain dataclass.

    ``make docs`` makes the schema from it with pydantic, which takes descriptions from docstrings.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "use_attribute_docstrings": True,
        "alias_generator": json_name,
        "populate_by_name": True,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Json):
    """What a path answers with."""

    schema_version: int = SCHEMA_VERSION


T = TypeVar("T")


def of(path: str, *, required: bool = False) -> Any:
    """Return a field that is called otherwise in the snapshot, or lies deeper: bounds.lower."""
    metadata = {"of": path}
    return field(metadata=metadata) if required else field(default=None, metadata=metadata)


def path_of(one: Field[Any]) -> tuple[str, ...]:
    """Return where in the snapshot a field is from."""
    return tuple(filter(None, str(one.metadata.get("of", one.name)).split(".")))


def copied(kind: Callable[..., T], source: object, **others: Any) -> T:
    """Return one of these types with `others`, and with what `source` has for its fields."""
    source_type: Any = type(source)
    found = dict(others)
    for name, path, convert in _plan(kind, source_type):
        if name in others:
            continue
        value: Any = source
        for attribute in path:
            value = getattr(value, attribute)
            if value is None:
                break
        found[name] = value if value is None or convert is None else convert(value)
    return kind(**found)


Convert = Callable[[Any], Any]


@lru_cache
def _plan(kind: Any, source: Any) -> list[tuple[str, tuple[str, ...], Convert | None]]:
    """Return the fields that such a source has: name, where it lies there, what converts it."""
    hints = get_type_hints(kind)
    attributes = frozenset(dir(source))
    planned = [(each.name, path_of(each), _converter(hints[each.name])) for each in fields(kind)]
    return [each for each in planned if each[1] and each[1][0] in attributes]


def _converter(hint: Any) -> Convert | None:
    inner, origin = get_args(hint), get_origin(hint)
    if NoneType in inner:
        return _converter(inner[0])
    if isinstance(hint, type) and issubclass(hint, Json):
        return lambda value: copied(hint, value)
    if origin not in (list, dict):
        return None
    each = _converter(inner[-1])
    if each is None:
        return _ordered if origin is list else _by_name
    convert = each
    if origin is list:
        return lambda values: list(map(convert, values))
    return lambda values: {name: convert(value) for name, value in values.items()}


def _ordered(values: Iterable[Any]) -> list[Any]:
    return sorted(values) if isinstance(values, frozenset) else list(values)


def _by_name(values: Any) -> dict[str, Any]:
    if hasattr(values, "keys"):
        return dict(values)
    return {each.name: getattr(values, each.name) for each in fields(values)}


def json_text(answer: Json, indent: int | None = None) -> str:
    """Return an answer as JSON; what is not known is left out, as are NaN and infinity."""
    separators = (",", ":") if indent is None else None
    return json.dumps(_known(answer), indent=indent, separators=separators, ensure_ascii=False)


def _known(value: Any) -> Any:
    if isinstance(value, list):
        return [_known(each) for each in value]
    if isinstance(value, dict):
        known = {name: _known(each) for name, each in value.items()}
    elif is_dataclass(value):
        known = {json_name(one.name): _known(getattr(value, one.name)) for one in fields(value)}
    else:
        return None if isinstance(value, float) and not isfinite(value) else value
    return {name: each for name, each in known.items() if each is not None}
