# SPDX-License-Identifier: Apache-2.0
"""Every metric family that this exporter serves, once: exposition, docs and tests use this."""

from __future__ import annotations

import re

from exporter.exposition.board import BOARD
from exporter.exposition.family import Family, Level
from exporter.exposition.health import HEALTH
from exporter.exposition.identity import IDENTITY
from exporter.exposition.own import EXPORTER
from exporter.exposition.roofline import IDLE, ROOFLINE
from exporter.exposition.saturation import SATURATION
from exporter.exposition.training import TRAINING, TRAINING_OWN
from exporter.exposition.use import USE

SECTIONS: dict[str, tuple[Family, ...]] = {
    "Identity": IDENTITY,
    "Utilization": (*USE, *BOARD),
    "Health": HEALTH,
    "Saturation": SATURATION,
    "Roofline": ROOFLINE,
    "Idle": IDLE,
    "Training": TRAINING,
    "The exporter itself": (*EXPORTER, *TRAINING_OWN),
}

CATALOGUE: dict[str, Family] = {
    family.name: family for families in SECTIONS.values() for family in families
}

PROCESS_MEMORY = "gpu_process_memory_bytes"


def selected(level: Level = "full", exclude: re.Pattern[str] | None = None) -> tuple[Family, ...]:
    """Return the families as a level serves them, but those whose whole name `exclude` matches."""
    return tuple(
        family.at(level)
        for family in CATALOGUE.values()
        if (level == "full" or family.level == "core")
        and not (exclude is not None and exclude.fullmatch(family.name))
    )
