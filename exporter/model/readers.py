# SPDX-License-Identifier: Apache-2.0
"""What the publisher and recordings read the GPUs through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from exporter.model.reading import SlotReport, XidRecord


class Readers(Protocol):
    """Whoever reads the GPUs; `exporter.sources.fleet.fleet.Fleet` on real ones."""

    name: str
    """The source that the node's state is published under: nvml, replay, simulate."""

    def round(self, wait_seconds: float) -> None:
        """Ask for a round of readings and wait for it, at most so long."""

    def reports(self) -> Sequence[SlotReport]:
        """Return what is known of every GPU."""

    def xids(self) -> Mapping[str, Mapping[int, XidRecord]]:
        """Return the Xids seen so far, by UUID."""

    def devices(self) -> Mapping[str, int]:
        """Return how many GPUs are counted, by who counts: pci, driver, nvml."""

    @property
    def problem(self) -> str | None:
        """Why no GPU can be read at all, in one line."""

    @property
    def failed_initialisations(self) -> int:
        """How often the driver library could not be initialised."""
