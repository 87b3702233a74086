# SPDX-License-Identifier: Apache-2.0
"""Adds the paths that FastAPI does not serve, in ``openapi.json``, to its OpenAPI document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from exporter.web.api.models.history import HistoryAnswer, TrailsAnswer

PATHS = Path(__file__).with_name("openapi.json")
_REFERENCE = "#/components/schemas/{model}"


def described(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with the paths that the framework does not know of."""
    answers = {
        "HistoryAnswer": TypeAdapter(HistoryAnswer).json_schema(ref_template=_REFERENCE),
        "TrailsAnswer": TypeAdapter(TrailsAnswer).json_schema(ref_template=_REFERENCE),
    }
    for answer in tuple(answers.values()):
        answers |= answer.pop("$defs", {})
    paths = {**schema["paths"], **json.loads(PATHS.read_text("utf-8"))}
    components = schema["components"]
    schemas = {**components["schemas"], **answers}
    return {**schema, "paths": paths, "components": {**components, "schemas": schemas}}
