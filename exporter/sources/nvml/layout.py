# SPDX-License-Identifier: Apache-2.0
"""A GPU's MIG layout, and whether it has changed since the GPU was opened."""

from __future__ import annotations

import contextlib
from ctypes import c_void_p, cast
from dataclasses import replace
from typing import Any, NamedTuple

import pynvml

from exporter.model.reading import Instance
from exporter.sources.nvml.identity import text
from exporter.sources.nvml.probe import (
    GONE,
    REFUSALS,
    Outcome,
    Probe,
    code_of,
    outcome_of,
    raise_if_gone,
)
from exporter.sources.reading_state import Journal

MIG = "mig"
"""The group of the layout, and the state of readings that do not exist while MIG is on."""
HIDDEN = "hidden"
"""The member of the group that is absent while there are instances that this user may not see."""
DEAD_CODES = frozenset({pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_FOUND})
"""Some of the codes that a removed MIG device answers."""


class MigSlot(NamedTuple):
    """One MIG device, with the handle through which its memory is read."""

    instance: Instance
    handle: Any


class MigDevices(NamedTuple):
    """The MIG devices of a GPU as the driver lists them."""

    slots: tuple[MigSlot, ...] | None
    """In the driver's order; None while MIG is off."""
    hidden: bool = False
    """Whether there are some that this user may not see."""
    possible: bool = True
    """Whether this GPU model has MIG, as far as this user may know."""


class MigLayout:
    """The MIG devices of one GPU as they were when it was opened."""

    def __init__(self, handle: Any, journal: Journal) -> None:
        """Read the layout."""
        self._journal = journal
        self._probe = Probe(journal, MIG, (lambda: mig_devices(handle),))
        self.possible = True
        found = self._read()
        self.slots = _unread(handle) if found is None else found.slots
        """In the driver's order; None while MIG is off."""

    @property
    def instances(self) -> tuple[Instance, ...] | None:
        """The MIG devices in the driver's order; None while MIG is off."""
        return None if self.slots is None else tuple(slot.instance for slot in self.slots)

    def _read(self) -> MigDevices | None:
        found = self._probe()
        if found is not None:
            self.possible = found.possible
            if found.hidden:
                self._journal.absent(MIG, "no_permission", HIDDEN)
            else:
                self._journal.answered(MIG, HIDDEN)
        return found

    def has_changed(self) -> bool:
        """Read the layout again; return whether it has changed for certain."""
        found = self._read()
        if found is None:
            return False
        return _places(_with_sizes(found.slots, self.slots)) != _places(self.slots)


def _unread(handle: Any) -> tuple[MigSlot, ...] | None:
    """Return an empty layout while MIG is on: the GPU is not read as a whole then."""
    try:
        return () if _mig_is_on(handle) else None
    except pynvml.NVMLError as error:
        raise_if_gone(code_of(error))
        return None


def _with_sizes(
    slots: tuple[MigSlot, ...] | None, known: tuple[MigSlot, ...] | None
) -> tuple[MigSlot, ...] | None:
    """Return `slots` with the sizes of `known` where the driver does not say them now."""
    if slots is None:
        return None
    before = {slot.instance.mig_uuid: slot.instance for slot in known or ()}
    sized = []
    for slot in slots:
        one = slot.instance
        other = before.get(one.mig_uuid, one)
        sizes = one.sm_count or other.sm_count, one.memory_bytes or other.memory_bytes
        sized.append(slot._replace(instance=replace(one, sm_count=sizes[0], memory_bytes=sizes[1])))
    return tuple(sized)


def _places(slots: tuple[MigSlot, ...] | None) -> list[tuple[int | None, Instance]] | None:
    """Return each MIG device and where the driver keeps it; None while MIG is off."""
    if slots is None:
        return None
    return [(cast(slot.handle, c_void_p).value, slot.instance) for slot in slots]


def mig_devices(handle: Any) -> MigDevices:
    """Return the MIG devices of a GPU; one that vanishes meanwhile is left out.

    Raises:
        pynvml.NVMLError: the driver cannot report them at present.
    """
    try:
        if not _mig_is_on(handle):
            return MigDevices(None)
    except pynvml.NVMLError as error:
        code = code_of(error)
        if code in REFUSALS:
            return MigDevices(None, code == pynvml.NVML_ERROR_NO_PERMISSION, possible=False)
        raise
    slots, hidden = [], False
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError as error:
            code = code_of(error)
            outcome = outcome_of(code)
            if outcome is Outcome.NO_PERMISSION:
                hidden = True
            elif code != pynvml.NVML_ERROR_NOT_FOUND and outcome is not Outcome.NEVER:
                raise
            continue  # a number that is not in use
        try:
            slots.append(_slot(mig))
        except pynvml.NVMLError as error:
            # The handle of a device dies with it; its errors then say nothing about the board.
            code = code_of(error)
            if code not in DEAD_CODES and outcome_of(code) not in GONE:
                raise
    return MigDevices(tuple(slots), hidden)


def _mig_is_on(handle: Any) -> bool:
    return bool(pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE)


def _slot(mig: Any) -> MigSlot:
    name = text("nvmlDeviceGetName", mig)
    sm_count = memory_mb = 0
    with contextlib.suppress(pynvml.NVMLError):  # the layout is of use without the sizes
        attributes = pynvml.nvmlDeviceGetAttributes_v2(mig)
        sm_count, memory_mb = attributes.multiprocessorCount, attributes.memorySizeMB
    instance = Instance(
        gpu_instance=pynvml.nvmlDeviceGetGpuInstanceId(mig),
        compute_instance=pynvml.nvmlDeviceGetComputeInstanceId(mig),
        profile=name.partition(" MIG ")[2] or name,
        mig_uuid=text("nvmlDeviceGetUUID", mig),
        sm_count=sm_count or None,
        memory_bytes=memory_mb * 2**20 or None,
    )
    return MigSlot(instance, mig)
