# SPDX-License-Identifier: Apache-2.0
"""Which known causes hold a GPU back."""

from __future__ import annotations

from exporter.exposition.family import Family, gauge
from exporter.exposition.labels import Label
from exporter.exposition.parts import SHARE
from exporter.model.causes import CAUSES

FAMILIES: tuple[Family, ...] = (
    gauge(
        "gpu_diagnosis",
        "1 for each known cause that holds this GPU back now, as far as the evidence shows it; no "
        "series for the others. docs/causes.md has a section for each, with what to change.",
        "derived from the last 10 s and the loop of its training jobs so far",
        SHARE.by_label(
            Label("cause", tuple(each.slug for each in CAUSES)),
            lambda share: {each.cause: 1 for each in share.diagnoses},
        ),
        level="core",
    ),
)
