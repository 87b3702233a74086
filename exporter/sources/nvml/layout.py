# SPDX-License-Identifier: Apache-2.0
"""Notice changes of a GPU's MIG layout since it was opened."""

from __future__ import annotations

from typing import Any

import pynvml

from exporter.sources.nvml.identity import MigSlot, as_glance, mig_glance, mig_layout
from exporter.sources.nvml.probe import Outcome, Probe, code_of, outcome_of, raise_if_gone
from exporter.sources.reading_state import Journal

MIG = "mig"
"""The group of the layout, and the state of readings that do not exist while MIG is on."""
HIDDEN = "hidden"
"""The member of the group that is absent while there are instances that this user may not see."""


class MigLayout:
    """The MIG devices of one GPU as they were when it was opened."""

    def __init__(self, handle: Any, journal: Journal) -> None:
        """Read the layout.

        Raises:
            DeviceGone: the GPU is lost.
            LibraryUnavailable: the library must be initialised again.
        """
        self._handle = handle
        self._journal = journal
        self._hidden = 0
        self._probe = Probe(journal, MIG, (lambda: (mig_layout(handle, self._count_hidden),),))
        self._possible = True
        """Whether this GPU model has MIG."""
        found = self._read()
        self.slots = self._unread() if found is None else found[0]
        """In the driver's order; None while MIG is off."""
        self._glance = as_glance(self.slots)

    def _count_hidden(self) -> None:
        self._hidden += 1

    def _read(self) -> tuple[tuple[MigSlot, ...] | None] | None:
        self._hidden = 0
        found = self._probe()
        if self._hidden:
            self._journal.absent(MIG, "no_permission", HIDDEN)
        elif found is not None:
            self._journal.answered(MIG, HIDDEN)
        return found

    def _unread(self) -> tuple[MigSlot, ...] | None:
        """Return an empty layout while MIG is on: the GPU is not read as a whole then."""
        try:
            on = pynvml.nvmlDeviceGetMigMode(self._handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE
        except pynvml.NVMLError as error:
            raise_if_gone(code_of(error))
            return None
        return () if on else None

    def has_changed(self) -> bool:
        """Read the layout again; return whether it has changed for certain.

        Raises:
            DeviceGone: the GPU is lost.
            LibraryUnavailable: the library must be initialised again.
        """
        self._possible = True
        found = self._read()
        return found is not None and (
            as_glance(found[0]) != self._glance or _instances(found[0]) != _instances(self.slots)
        )

    def seems_changed(self) -> bool:
        """Return whether MIG mode, handles or UUIDs have changed, which takes only a few calls.

        Raises:
            DeviceGone: the GPU is lost.
            LibraryUnavailable: the library must be initialised again.
        """
        if not self._possible:
            return False
        self._journal.progress()
        try:
            return mig_glance(self._handle) != self._glance
        except Exception as error:  # `has_changed` notes what is wrong
            code = code_of(error)
            raise_if_gone(code)
            self._possible = outcome_of(code) not in (Outcome.NEVER, Outcome.NO_PERMISSION)
            return False


def _instances(slots: tuple[MigSlot, ...] | None) -> list[Any] | None:
    return None if slots is None else [slot.instance for slot in slots]
