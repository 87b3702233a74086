# SPDX-License-Identifier: Apache-2.0
"""Adds the paths that FastAPI does not serve to its OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from exporter.web.api.history import HISTORY_PATH, TRAILS_PATH
from exporter.web.api.models.history import HistoryAnswer, TrailsAnswer
from exporter.web.live.stream import STREAM_PATH

_REFERENCE = "#/components/schemas/{model}"
_STREAM = (
    "What the page shows, as server-sent events: first an event `snapshot` with the whole view as "
    "a JSON object, then for each later snapshot, at most once a second, an event `diff` with a "
    "JSON merge patch (RFC 7386) against the view before. The id of an event is the number of its "
    "snapshot. After a gap the whole view comes again. The view itself may change between releases."
)


def _json(model: str, what: str = "Columns.") -> dict[str, Any]:
    schema = {"$ref": _REFERENCE.format(model=model)}
    return {"description": what, "content": {"application/json": {"schema": schema}}}


def _parameter(name: str, where: str, kind: str, what: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": where,
        "required": where == "path",
        "schema": {"type": kind},
        "description": what,
    }


def described(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with the paths that the framework does not know of."""
    answers = {
        "HistoryAnswer": TypeAdapter(HistoryAnswer).json_schema(ref_template=_REFERENCE),
        "TrailsAnswer": TypeAdapter(TrailsAnswer).json_schema(ref_template=_REFERENCE),
    }
    for answer in tuple(answers.values()):
        answers |= answer.pop("$defs", {})
    paths = {
        **schema["paths"],
        HISTORY_PATH: {
            "get": {
                "summary": "History",
                "description": "The last 15 minutes of one GPU, by its UUID or its index.",
                "operationId": "history",
                "parameters": [
                    _parameter("uuid", "path", "string", "UUID or index of the GPU."),
                    _parameter(
                        "instance",
                        "query",
                        "integer",
                        "GPU instance; without it the whole GPU, or its board while MIG is on.",
                    ),
                    _parameter("since", "query", "number", "Unix time: only the points after it."),
                ],
                "responses": {
                    "200": _json("HistoryAnswer"),
                    "400": _json("Problem", "A parameter is not a number."),
                    "404": _json("Problem", "There is no such GPU or instance."),
                },
            }
        },
        TRAILS_PATH: {
            "get": {
                "summary": "Trails",
                "description": "Where every GPU was in its roofline in the last 3 minutes.",
                "operationId": "trails",
                "responses": {"200": _json("TrailsAnswer")},
            }
        },
        STREAM_PATH: {
            "get": {
                "summary": "Stream",
                "description": _STREAM,
                "operationId": "stream",
                "responses": {
                    "200": {
                        "description": "Events, until either side ends the connection.",
                        "content": {"text/event-stream": {"schema": {"type": "string"}}},
                    },
                    "503": {
                        "description": "Too many streams are open; one line says so.",
                        "content": {"text/plain": {"schema": {"type": "string"}}},
                    },
                },
            }
        },
    }
    components = schema["components"]
    schemas = {**components["schemas"], **answers}
    return {**schema, "paths": paths, "components": {**components, "schemas": schemas}}
