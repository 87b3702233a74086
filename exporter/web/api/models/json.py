# SPDX-License-Identifier: Apache-2.0
"""What all types of the API have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from exporter.web.api import SCHEMA_VERSION

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
