# SPDX-License-Identifier: Apache-2.0
"""What all types of the API have in common, and how they are written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from exporter.web.api import SCHEMA_VERSION

if TYPE_CHECKING:
    from pydantic import TypeAdapter

NAMES = {"work_class": "class"}
"""How fields are called in the JSON that cannot be called so in Python."""


def json_name(field: str) -> str:
    """Return how a field is called in the JSON."""
    return NAMES.get(field, field)


class Json:
    """An object of the JSON: a plain dataclass, so that it can be read without a framework.

    The schema is made from it by pydantic, which takes the descriptions from the docstrings.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "use_attribute_docstrings": True,
        "alias_generator": json_name,
        "populate_by_name": True,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Json):
    """Why a request was not answered."""

    schema_version: int = SCHEMA_VERSION
    error: str


T = TypeVar("T")


def copied(kind: Callable[..., T], source: object, **others: Any) -> T:
    """Return a dataclass with `others`, and with what `source` has by the same names."""
    for name in _names(kind) - others.keys():
        if hasattr(source, name):
            value = getattr(source, name)
            if isinstance(value, Mapping):
                value = dict(value)
            others[name] = list(value) if isinstance(value, tuple) else value
    return kind(**others)


@lru_cache
def _names(kind: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))


_building = threading.Lock()
"""Pydantic parses sources for the fields' texts, which Python before 3.13 cannot do in two threads
at once."""


@lru_cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    with _building:
        return TypeAdapter(kind)


def json_text(answer: Json, indent: int | None = None) -> str:
    """Return an answer as JSON; what is not known is left out."""
    kind: type = type(answer)
    adapter = _adapter(kind)
    return adapter.dump_json(answer, exclude_none=True, by_alias=True, indent=indent).decode()
