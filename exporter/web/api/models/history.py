# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/gpus/{uuid}/history`` and ``/api/v1/roofline/trails``, for the schema alone."""

from __future__ import annotations

from pydantic import BaseModel, Field

from exporter.web.api import SCHEMA_VERSION


class HistoryAnswer(BaseModel):
    """The last 15 minutes of one GPU or instance, at most one point a second."""

    schema_version: int = SCHEMA_VERSION
    uuid: str = Field(description="Of the physical GPU.")
    gpu_instance: int | None = None
    throttle_reasons: list[str] = Field(
        description="What the bits of the column throttled stand for, from the lowest."
    )
    timestamps: list[float] = Field(description="Unix time of each point, rising.")
    columns: dict[str, list[float | None]] = Field(
        description="By reading, a value for each point; null where it is not known then. A "
        "column in which nothing is known is left out."
    )


class TrailJson(BaseModel):
    """Where one GPU or instance was; null where that is not known."""

    flops: list[float | None] = Field(description="FLOP/s, over all precisions.")
    bytes: list[float | None] = Field(description="Bytes/s of DRAM traffic.")


class TrailsAnswer(BaseModel):
    """The last 3 minutes of every GPU or instance in the roofline, in means of 5 s."""

    schema_version: int = SCHEMA_VERSION
    timestamps: list[float] = Field(description="Unix time of each point, rising.")
    trails: dict[str, TrailJson] = Field(description="By UUID, or UUID/instance.")
