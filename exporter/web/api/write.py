# SPDX-License-Identifier: Apache-2.0
"""From the types of the API to its JSON."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from exporter.web.api.models.json import Json

_building = threading.Lock()
"""Pydantic parses sources for the fields' texts, which Python before 3.13 cannot do in two threads
at once."""


@lru_cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    with _building:
        return TypeAdapter(kind)


def json_text(answer: Json, indent: int | None = None) -> str:
    """Return an answer as JSON; what is not known is left out."""
    kind: type = type(answer)
    return (
        _adapter(kind).dump_json(answer, exclude_none=True, by_alias=True, indent=indent).decode()
    )
