# SPDX-License-Identifier: Apache-2.0
"""Which GPUs a child is to measure: those that no preferred source measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from exporter.model.reading import Device

PATIENCE_SECONDS = 5.0
"""How long a GPU goes without a preferred source before this one is wanted: those take a moment to
start."""
LINGER_SECONDS = 30.0
"""How long it is still measured after a preferred source measures it again."""


@dataclass(slots=True)
class _Want:
    device: Device
    gpu_instances: tuple[int | None, ...]
    wanted: bool
    since: float
    """When `wanted` last was what it should be."""


class Demand:
    """Which of the opened GPUs want this source; the keys are their sessions."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience = patience_seconds
        self._wants: dict[object, _Want] = {}

    def add(
        self, session: object, device: Device, gpu_instances: tuple[int | None, ...], now: float
    ) -> None:
        """Note that a GPU was opened, with these shares."""
        self._wants[session] = _Want(device, gpu_instances, wanted=False, since=now)

    def remove(self, session: object) -> None:
        """Note that it was closed."""
        self._wants.pop(session, None)

    def note(self, session: object, now: float, *, better: bool) -> bool:
        """Note in each round whether preferred sources measure the GPU.

        Returns whether that changes if the GPU is wanted.
        """
        want = self._wants.get(session)
        if want is None:
            return False
        if want.wanted != better:  # as it was
            want.since = now
            return False
        if now - want.since < (LINGER_SECONDS if want.wanted else self._patience):
            return False
        want.wanted, want.since = not want.wanted, now
        return True

    def is_wanted(self, gpu: str, gpu_instance: int | None) -> bool:
        """Return whether this share is to be measured."""
        return any(
            want.wanted and want.device.uuid == gpu and gpu_instance in want.gpu_instances
            for want in self._wants.values()
        )

    def has(self, gpu: str, gpu_instance: int | None = None) -> bool:
        """Return whether the GPU is open, and has this instance."""
        return any(
            want.device.uuid == gpu and gpu_instance in (None, *want.gpu_instances)
            for want in self._wants.values()
        )

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs to measure, as a child gets them."""
        found = {
            want.device.uuid: {
                "uuid": want.device.uuid,
                "index": want.device.index,
                "pci_bus_id": want.device.pci_bus_id,
                "gpu_instances": [share for share in want.gpu_instances if share is not None],
            }
            for want in self._wants.values()
            if want.wanted
        }
        return sorted(found.values(), key=lambda gpu: gpu["uuid"])
