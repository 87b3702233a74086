# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/diagnosis``, the known causes that each GPU shows now, and ``/api/v1/idle``."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.web.api.models.gpus import DiagnosisJson
from exporter.web.api.models.json import Answer, Json


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidDiagnosisJson(DiagnosisJson):
    """A known cause that a GPU or a MIG instance shows now."""

    gpu: int
    uuid: str
    gpu_instance: int | None = None
    finding: str
    """What is seen, for people; it may change between releases. The next one too."""
    advice: str
    """What to change."""
    documentation: str
    """The address of its section of the documentation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotKnownJson(Json):
    """A GPU or a MIG instance that waits for data, and why no cause can be told."""

    gpu: int
    uuid: str
    gpu_instance: int | None = None
    missing_evidence: list[str]
    reason: str
    """The same for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisAnswer(Answer):
    """Every cause that is shown; of a GPU without one there is nothing."""

    timestamp_seconds: float | None = None
    """Unix time of the snapshot; absent before the first one."""
    diagnoses: list[SaidDiagnosisJson]
    """By GPU, the most certain first."""
    not_known: list[NotKnownJson]


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
class IdleAnswer(Answer):
    """The answer for all GPUs that are asked for: idle only if every one is."""

    timestamp_seconds: float | None = None
    """Unix time of the snapshot; absent before the first one."""
    state: str
    """idle, busy or not_known. Take not_known for busy."""
    reason: str
    """Why, for people; it may change between releases."""
    gpus: list[IdleForJson]
