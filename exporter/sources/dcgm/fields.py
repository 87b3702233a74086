# SPDX-License-Identifier: Apache-2.0
"""Which of DCGM's fields are read off a page, by each of their names."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.model.dcgm import FIELDS, MEDIA_FIELDS, Field

BY_NAME: Mapping[str, Field] = {
    name: field for field in (*FIELDS, *MEDIA_FIELDS) for name in field.names
}
"""Every field under each of its names on a page."""

COMPLETING = tuple(
    field
    for field in FIELDS
    if field.activity in {"sm", "occupancy", "fp64", "fp32", "fp16", "integer", "imma", "hmma"}
)
"""The fields to add to dcgm-exporter's own list of metrics; with them the saturation is complete.
That list has engine, tensor, DRAM and PCIe."""

MOVING = frozenset(
    f"DCGM_FI_DEV_{name}"
    for name in (
        *("TOTAL_ENERGY_CONSUMPTION", "GPU_ENERGY_JOULES_TOTAL"),
        *("POWER_USAGE", "BOARD_POWER_WATTS"),
        *("GPU_TEMP", "GPU_TEMP_CELSIUS"),
    )
)
"""Readings that change from one sample to the next also on an idle GPU: a page on which these and
the fields stay the same has not been renewed."""
