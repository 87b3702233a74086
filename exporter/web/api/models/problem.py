# SPDX-License-Identifier: Apache-2.0
"""What is answered where nothing else can be."""

from __future__ import annotations

from pydantic import BaseModel

from exporter.web.api import SCHEMA_VERSION


class Problem(BaseModel):
    """Why a request was not answered."""

    schema_version: int = SCHEMA_VERSION
    error: str
