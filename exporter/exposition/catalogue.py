# SPDX-License-Identifier: Apache-2.0
"""The catalogue of all metric families, which exposition, docs and tests use."""

from __future__ import annotations

import re

from exporter.exposition import (
    board,
    exporter_metrics,
    health,
    identity,
    processes,
    roofline,
    saturation,
    training,
    use,
    workloads,
)
from exporter.exposition.family import Family, Level
from exporter.exposition.processes import ProcessRows, limited

SECTIONS: dict[str, tuple[Family, ...]] = {
    "Identity": identity.FAMILIES,
    "Utilization": (*use.FAMILIES, *processes.FAMILIES, *board.FAMILIES),
    "Health": health.FAMILIES,
    "Saturation": saturation.FAMILIES,
    "Roofline": roofline.FAMILIES,
    "Diagnosis": roofline.DIAGNOSIS_FAMILIES,
    "Idle": workloads.IDLE_FAMILIES,
    "Workloads": workloads.FAMILIES,
    "Training": training.FAMILIES,
    "Collectives": training.COLLECTIVE_FAMILIES,
    "The exporter itself": exporter_metrics.FAMILIES,
}

CATALOGUE: dict[str, Family] = {
    family.name: family for families in SECTIONS.values() for family in families
}


def selected(
    level: Level = "full",
    exclude: re.Pattern[str] | None = None,
    rows: ProcessRows = ProcessRows(),  # noqa: B008 (frozen)
) -> tuple[Family, ...]:
    """Return the families as a level serves them, but those whose whole name `exclude` matches."""
    return tuple(
        family.at(level)
        for family in limited(CATALOGUE.values(), rows)
        if (level == "full" or family.level == "core")
        and not (exclude is not None and exclude.fullmatch(family.name))
    )
