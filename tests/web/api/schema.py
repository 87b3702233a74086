# SPDX-License-Identifier: Apache-2.0
"""Writes the OpenAPI document of the API.

``python -m tests.web.api.schema exporter/web/api/openapi.json``, or ``make docs``. ``paths.json``
says what can be asked; the schemas are made from the types of the answers, and from those of this
module what the daemon writes without a type.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from exporter import __version__
from exporter.web.api.models.diagnosis import DiagnosisAnswer, IdleAnswer
from exporter.web.api.models.gpus import GpuAnswer, GpusAnswer
from exporter.web.api.models.json import Answer, Json
from exporter.web.api.models.roofline import RooflineAnswer, SpecsAnswer
from exporter.web.api.models.training import TrainingAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Answer):
    """Why a request was not answered."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryAnswer(Answer):
    """The last 15 minutes of one GPU or instance, at most one point a second.

    What it does is at each point the mean of the 10 s up to it; readings of the board, of memory
    and links are those of the last interval.
    """

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
class TrailsAnswer(Answer):
    """The last 3 minutes of every GPU or instance in the roofline, in means of 5 s."""

    timestamps: list[float]
    """Unix time of each point, rising."""
    trails: dict[str, TrailJson]
    """By UUID, or UUID/instance."""


ANSWERS: tuple[type[Json], ...] = (
    GpusAnswer,
    GpuAnswer,
    RooflineAnswer,
    TrainingAnswer,
    DiagnosisAnswer,
    IdleAnswer,
    SpecsAnswer,
    Problem,
    HistoryAnswer,
    TrailsAnswer,
)
PATHS = Path(__file__).with_name("paths.json")
DESCRIPTION = (
    "How busy, how saturated and how idle each NVIDIA GPU of this node is. What is not known is "
    "left out of the JSON; it is never null (but in columns of a history), 0 or a special value. "
    "Ratios are 0 to 1, all else is in base units: seconds, bytes, joules, watts, hertz, FLOP/s."
)


def openapi() -> dict[str, Any]:
    """Return the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "roofline-exporter",
            "description": DESCRIPTION,
            "version": __version__,
        },
        "paths": json.loads(PATHS.read_text("utf-8")),
        "components": {"schemas": _schemas()},
    }


def _schemas() -> dict[str, Any]:
    _, found = TypeAdapter.json_schemas(
        [(model.__name__, "validation", TypeAdapter(model)) for model in ANSWERS],
        ref_template="#/components/schemas/{model}",
    )
    # Null is the default of what is left out.
    schemas: dict[str, Any] = json.loads(json.dumps(found["$defs"]), object_hook=_without_nulls)
    return schemas


def _without_nulls(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value is not None}


def text() -> str:
    """Return the document as it is served."""
    return f"{json.dumps(openapi())}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
