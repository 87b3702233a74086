# SPDX-License-Identifier: Apache-2.0
"""Which GPUs were ever seen, and at which index each is now: one slot per UUID."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Protocol

from exporter.model.reading import SUSPENDED, Device, Reading, SlotReport
from exporter.sources.journal import Past

NOT_LISTED = "the driver does not list it any more"
MISSED_COUNTS = 3
"""A GPU that another took the index of counts as gone after so many: it may have just moved."""

log = logging.getLogger(__name__)


class Reader(Protocol):
    """The thread that reads the GPU of a slot; `exporter.sources.fleet.worker.Worker`."""

    generation: int
    verify: bool
    """Whether it is to look up its GPU's index with the next round."""
    asked: bool

    @property
    def hung(self) -> bool:
        """True while a driver call has lasted for too long."""

    def ask(self) -> None:
        """Start a round."""

    def retry(self) -> None:
        """Try with the next round what was to wait for longer."""

    def stop(self) -> None:
        """End after the call that it may be in."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""

    def is_alive(self) -> bool:
        """Return whether it has not ended."""


class Slot:
    """The place of one GPU: its latest reading, and the worker that may fill it.

    Until its GPU is opened for the first time it stands for whatever the driver has at its index.
    Several threads may be stuck in the driver for one GPU; only `current` hands over readings.
    """

    def __init__(self, number: int, index: int) -> None:
        self.number = number
        """Stays, and no other slot has it; the index if that was free."""
        self.index = index
        """The one that the driver gave it last."""
        self.listed = True
        """Whether it is at this index, as far as is known."""
        self.missed = 0
        """How often the GPUs were counted since it was not where it had been."""
        self.uuid: str | None = None
        self.lock = threading.Lock()
        self.current: Reader | None = None
        self.stuck: list[Reader] = []
        """Workers that were replaced while inside a call and have not come back."""
        self.reading: Reading | None = None
        self.device: Device | None = None
        """The identity last seen here; outlives a lost GPU."""
        self.problem: str | None = None
        """Why there is no reading, in one phrase."""
        self.past = Past()
        """What its sessions left for the next one."""
        self.left_out = False
        """True once the configuration was found not to want this GPU."""

    @property
    def name(self) -> str:
        """How the log calls it."""
        return f"GPU {self.index}" + (f" ({self.uuid})" if self.uuid else "")

    @property
    def suspended(self) -> bool:
        """True while the GPU sleeps and is not woken."""
        return self.problem == SUSPENDED

    def set_problem(self, problem: str | None, level: int = logging.WARNING) -> None:
        """Note why the GPU cannot be read, or that it can; log each change once."""
        if problem == self.problem:
            return
        if problem is None:
            log.info("%s answers again after: %s", self.name, self.problem)
        else:
            log.log(level, "%s cannot be read: %s", self.name, problem)
        self.problem = problem

    def vacate(self, problem: str | None) -> None:
        """End the worker, and the reading with it, for this reason (None: that it had)."""
        with self.lock:
            if self.current is not None:
                self.current.stop()
            self.current = None
            self.reading = None
            if problem is not None:
                self.set_problem(problem)

    def report(self) -> SlotReport:
        """Return what is known of the GPU."""
        return SlotReport(
            self.number, self.device, self.reading, self.problem, dict(self.past.failures)
        )


class Slots:
    """The slots of all GPUs. Hold `lock` around every call, and take it before that of a slot."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._slots: list[Slot] = []

    def __iter__(self) -> Iterator[Slot]:
        return iter(tuple(self._slots))

    def of(self, uuid: str) -> list[Slot]:
        """Return the slot of this GPU, if it was ever opened."""
        return [slot for slot in self._slots if slot.uuid == uuid]

    def at(self, index: int) -> list[Slot]:
        """Return the slots at `index`; a new one if the driver has a GPU there that none knows.

        More than one until all have looked up their own index after the driver numbered anew.
        """
        found = [slot for slot in self._slots if slot.listed and slot.index == index]
        if not found:
            taken = {slot.number for slot in self._slots}
            number = index
            while number in taken:
                number += 1
            found = [Slot(number, index)]
            self._slots += found
        return found

    def unlist(self, count: int) -> None:
        """Take note that the driver has only `count` GPUs, and who is not among them."""
        for slot in self._slots:
            if slot.listed and slot.index >= count:
                slot.listed = False
                slot.vacate(NOT_LISTED)
            elif not slot.listed:
                slot.missed += 1
                if slot.missed == MISSED_COUNTS:
                    slot.set_problem(NOT_LISTED)

    def claim(self, slot: Slot, uuid: str) -> bool:
        """Decide whether `slot`, at whose index the driver has GPU `uuid`, may read it.

        If not, the slot's worker is ended: the GPU has a slot of its own, or `slot` is another's.
        """
        owner = next(iter(self.of(uuid)), None)
        if owner is slot or (owner is None and slot.uuid is None):
            slot.uuid = uuid
            return True
        if slot.uuid is None:
            slot.vacate(None)
            self._slots.remove(slot)
        else:
            slot.listed = False
            slot.missed = 0
            slot.vacate(None)
        if owner is not None:
            self._meet(owner, slot)
        return False

    def _meet(self, owner: Slot, slot: Slot) -> None:
        """Tell `owner` that its GPU was met at the index of `slot`."""
        for source, count in slot.past.failures.items() if slot.uuid is None else ():
            owner.past.failures[source] = owner.past.failures.get(source, 0) + count
        worker = owner.current
        if worker is None or not owner.listed:
            self.move(owner, slot.index)
        else:  # it finds out itself, from the GPU or at its index
            worker.verify = True
            worker.retry()

    def move(self, slot: Slot, index: int) -> None:
        """Take note that the GPU of `slot` has another index now."""
        if slot.listed and slot.index == index:
            return
        if slot.index != index:
            log.info("%s is GPU %d from now on", slot.name, index)
        slot.index = index
        slot.listed = True
