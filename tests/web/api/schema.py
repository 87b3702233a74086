# SPDX-License-Identifier: Apache-2.0
"""Writes the OpenAPI document of the API.

``python -m tests.web.api.schema exporter/web/api/openapi.json``, or ``make docs``. What its
framework does not know is added: the models of the answers, those that the daemon writes without a
model among them, and in ``paths.json`` the paths that it does not serve.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from exporter.specs import load_specs
from exporter.web.api import SCHEMA_VERSION
from exporter.web.api.app import api_app
from exporter.web.api.models.diagnosis import DiagnosisAnswer, IdleAnswer
from exporter.web.api.models.gpus import GpuAnswer, GpusAnswer
from exporter.web.api.models.json import Json
from exporter.web.api.models.roofline import RooflineAnswer, SpecsAnswer
from exporter.web.api.models.training import TrainingAnswer
from exporter.web.store import Store
from exporter.web.threads import Threads


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Json):
    """Why a request was not answered."""

    schema_version: int = SCHEMA_VERSION
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryAnswer(Json):
    """The last 15 minutes of one GPU or instance, at most one point a second.

    What it does is at each point the mean of the 10 s up to it; readings of the board, of memory
    and links are those of the last interval.
    """

    schema_version: int = SCHEMA_VERSION
    uuid: str
    """Of the physical GPU."""
    gpu_instance: int | None = None
    throttle_reasons: list[str]
    """What the bits of the column throttled stand for, from the lowest."""
    timestamps: list[float]
    """Unix time of each point, rising."""
    columns: dict[str, list[float | None]]
    """By reading: a value for each point, null where not known. One never known is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailJson(Json):
    """Where one GPU or instance was; null where that is not known."""

    flops: list[float | None]
    """FLOP/s, over all precisions."""
    bytes: list[float | None]
    """Bytes/s of DRAM traffic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailsAnswer(Json):
    """The last 3 minutes of every GPU or instance in the roofline, in means of 5 s."""

    schema_version: int = SCHEMA_VERSION
    timestamps: list[float]
    """Unix time of each point, rising."""
    trails: dict[str, TrailJson]
    """By UUID, or UUID/instance."""


ANSWERS: dict[str, type[Json]] = {
    "/api/v1/gpus": GpusAnswer,
    "/api/v1/gpus/{uuid}": GpuAnswer,
    "/api/v1/roofline": RooflineAnswer,
    "/api/v1/training": TrainingAnswer,
    "/api/v1/diagnosis": DiagnosisAnswer,
    "/api/v1/idle": IdleAnswer,
    "/api/v1/specs": SpecsAnswer,
}
PATHS = Path(__file__).with_name("paths.json")


def openapi() -> dict[str, Any]:
    """Return the document."""
    document = api_app(Store(), load_specs, Threads("schema", 1)).openapi()
    paths = document["paths"]
    for path, model in ANSWERS.items():
        _answers(paths[path], "200", "Successful Response", model)
    _answers(paths["/api/v1/gpus/{uuid}"], "404", "Not Found", Problem)
    paths.update(json.loads(PATHS.read_text("utf-8")))
    known = json.dumps(_schemas([*ANSWERS.values(), Problem]))
    schemas = json.loads(known, object_hook=_without_nulls) | _schemas(
        [HistoryAnswer, TrailsAnswer]
    )
    document["components"]["schemas"].update(schemas)
    return document


def _schemas(models: Sequence[type[Json]]) -> dict[str, Any]:
    _, found = TypeAdapter.json_schemas(
        [(model.__name__, "validation", TypeAdapter(model)) for model in models],
        ref_template="#/components/schemas/{model}",
    )
    schemas: dict[str, Any] = found["$defs"]
    return schemas


def _without_nulls(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out defaults that are null, as the framework does of its own models."""
    return {name: value for name, value in found.items() if value is not None}


def _answers(path: dict[str, Any], status: str, text: str, model: type[Json]) -> None:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    content = {"application/json": {"schema": schema}}
    path["get"]["responses"][status] = {"description": text, "content": content}


def text() -> str:
    """Return the document as it is served."""
    return f"{json.dumps(openapi())}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
