# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/idle``: whether GPUs have been idle for so long."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.web.api import SCHEMA_VERSION
from exporter.web.api.models.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleForJson(Json):
    """What is known of one GPU or MIG instance."""

    gpu: int
    uuid: str
    gpu_instance: int | None = None
    state: str
    """idle, busy or not_known."""
    reason: str
    """Why, for people; it may change between releases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleAnswer(Json):
    """The answer for all GPUs that are asked for: idle only if every one is."""

    schema_version: int = SCHEMA_VERSION
    timestamp_seconds: float | None = None
    """Unix time of the snapshot; absent before the first one."""
    state: str
    """idle, busy or not_known. Take not_known for busy."""
    reason: str
    """Why, for people; it may change between releases."""
    gpus: list[IdleForJson]
