# SPDX-License-Identifier: Apache-2.0
"""Reads the untrusted file of ``run --summary``, and completes it from a daemon.

docs/compare.md describes it; `roofline_job.summary_file` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from exporter.errors import ConfigError
from exporter.files import read_regular
from exporter.sources.recording.lines import InvalidLine, decode

MOST_BYTES = 1 << 18
Amount = Annotated[float, Field(ge=0, le=1e30)]
Count = Annotated[int, Field(ge=0, le=10**18)]
Ratio = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """The summary of a job that has ended; unknown values are absent."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, allow_inf_nan=False)

    format: Literal["roofline-exporter-summary"]
    version: Literal[1]
    job: str
    ranks: Count
    steps: Count
    loop_seconds: Amount
    steps_per_second: Amount
    data_wait_ratio: Ratio | None = None
    data_stall_ratio: Ratio | None = None
    phase_seconds: Mapping[str, Amount] = field(default_factory=dict)
    flops_per_second: Amount | None = None
    mfu_ratio: Amount | None = None
    precision: str | None = None
    gpu: str | None = None
    loader: Mapping[str, int | bool] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    degraded: Mapping[str, str] = field(default_factory=dict)
    saturation_ratio: Ratio | None = None
    saturation_bounds: tuple[Ratio, Ratio] | None = None
    energy_joules: Amount | None = None
    gpu_seconds: Amount | None = None


def read_summary(path: Path) -> JobSummary:
    """Return the summary in a file; raise ConfigError in one line that names file and key."""
    try:
        return parsed(read_regular(path, MOST_BYTES))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def parsed(content: bytes) -> JobSummary:
    """Return the summary in the content of a file; raise ValueError, which names the key."""
    try:
        return decode(JobSummary, content)
    except InvalidLine as error:
        message = str(error).replace(".int: ", ": ")  # the first of two types
        message = message.replace("a line of JSON", "JSON, as run --summary writes it")
        raise ValueError(message) from None


def with_daemon(content: bytes, known: Mapping[str, object]) -> bytes:
    """Return the content of a file, completed with a daemon's values of its job.

    Raises ValueError where it is no summary, or would be none then.
    """
    parsed(content)
    merged = json.dumps({**json.loads(content), **known}, indent=2, allow_nan=False) + "\n"
    parsed(merged.encode())
    return merged.encode()
