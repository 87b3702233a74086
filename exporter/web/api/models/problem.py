# SPDX-License-Identifier: Apache-2.0
"""What is answered where nothing else can be."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.web.api import SCHEMA_VERSION
from exporter.web.api.models.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Json):
    """Why a request was not answered."""

    schema_version: int = SCHEMA_VERSION
    error: str
