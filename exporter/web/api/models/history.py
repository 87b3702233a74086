# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/gpus/{uuid}/history`` and ``/api/v1/roofline/trails``, for the schema alone."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.web.api import SCHEMA_VERSION
from exporter.web.api.models.json import Json


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
