# SPDX-License-Identifier: Apache-2.0
"""One metric of dcgm-exporter: names and units in both generations, and how to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from exporter.exposition.parts import ValueReader

Names = Literal["legacy", "current"]
"""Up to dcgm-exporter 4.8, and from 4.9 on."""
NAMES: tuple[str, ...] = get_args(Names)
Kind = Literal["counter", "gauge"]
Listed = Literal["default", "commented", "other"]
"""In dcgm-exporter's default list, commented out there, or only in DCGM."""

PREFIX = "DCGM_FI_DEV_"


@dataclass(frozen=True, slots=True)
class WrittenUnit:
    """A unit of dcgm-exporter, and how to format a value in base units in it."""

    name: str
    write: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Naming:
    """Name, type and unit of a metric in one generation."""

    name: str
    kind: Kind
    unit: WrittenUnit


@dataclass(frozen=True, slots=True)
class DcgmMetric:
    """One metric of dcgm-exporter."""

    number: int | None
    """DCGM's number for it; None for one of dcgm-exporter's own."""
    listed: Listed
    legacy: Naming
    current: Naming
    meaning: str
    reader: ValueReader
    each: bool = False
    """Whether a value of the board is repeated for each GPU instance while MIG is on, as
    dcgm-exporter does: a temperature is, an amount is not."""

    def form(self, names: Names) -> Naming:
        """Return name, type and unit in one generation."""
        return self.legacy if names == "legacy" else self.current

    def help(self, names: Names) -> str:
        """Return the HELP line."""
        unit = self.form(names).unit.name
        return f"{self.meaning} ({unit})." if unit else f"{self.meaning}."
