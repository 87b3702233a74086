# SPDX-License-Identifier: Apache-2.0
"""From the types of the API to its JSON."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from exporter.web.api.models.json import Json


@lru_cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def json_text(answer: Json, indent: int | None = None) -> str:
    """Return an answer as JSON; what is not known is left out."""
    kind: type = type(answer)
    return (
        _adapter(kind).dump_json(answer, exclude_none=True, by_alias=True, indent=indent).decode()
    )
