# SPDX-License-Identifier: Apache-2.0
"""Keeps the driver's totals from falling when a recording starts over."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from exporter.model.reading import Board, Health, Vitals

Part = TypeVar("Part", Vitals, Board, Health)

TOTALS: Mapping[type, tuple[str, ...]] = {
    Vitals: (
        "energy_joules",
        "throttle_seconds",
        "nvlink_transmit_bytes_total",
        "nvlink_receive_bytes_total",
    ),
    Board: (
        "pcie_replays_total",
        "pcie_errors_total",
        "pcie_link_recoveries_total",
        "nvlink_errors_total",
    ),
    Health: ("ecc_errors_total",),
}


class Rebase:
    """Adds to each total what it had grown to in the passes before.

    Within a pass a total moves as it was recorded, also down where the driver started over.
    """

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, ...], float] = {}
        """Of the totals seen in this pass."""
        self._last: dict[tuple[str, ...], float] = {}

    def start_over(self) -> None:
        """Go on from the last values: the next ones are the first of a pass."""
        self._offsets.clear()

    def moved(self, uuid: str, part: Part) -> Part:
        """Return `part` of this GPU's reading with its totals moved."""
        values = {
            name: self._moved((uuid, name), value)
            for name in TOTALS[type(part)]
            if (value := getattr(part, name)) is not None
        }
        return dataclasses.replace(part, **values)

    def _moved(self, path: tuple[str, ...], value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._moved((*path, name), item) for name, item in value.items()}
        offset = self._offsets.get(path)
        if offset is None:
            offset = self._offsets[path] = self._last.get(path, value) - value
        moved = self._last[path] = value + offset
        return moved
