# SPDX-License-Identifier: Apache-2.0
"""Which GPUs have been seen, and at which index each is now: one slot per UUID."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Protocol

from exporter.model.reading import SUSPENDED, Device, Reading, SlotReport
from exporter.sources.reading_state import Past

NOT_LISTED = "the driver does not list it any more"
MISSED_COUNTS = 3
"""After how many counts a GPU is gone if another has its index: it may only have moved."""

log = logging.getLogger(__name__)


class Reader(Protocol):
    """The thread that reads the GPU of a slot: a `Worker`, as the slots see it."""

    generation: int
    verify: bool
    """Whether to look up the GPU's index in the next round."""
    asked: bool

    @property
    def hung(self) -> bool:
        """True while a driver call has lasted for too long."""

    def ask(self) -> None:
        """Start a round, unless one is under way."""

    def retry(self) -> None:
        """Open the GPU in the next round, even if its back-off is not over."""

    def stop(self) -> None:
        """End the thread after its present driver call."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended."""

    def is_alive(self) -> bool:
        """Return whether the thread is running."""


class Slot:
    """One GPU: its latest reading, and the worker that writes it.

    Until the GPU is opened for the first time, a slot is that of the GPU at its index. Several
    threads may be stuck in the driver for one GPU; only `current` hands over readings.
    """

    def __init__(self, number: int, index: int) -> None:
        self.number = number
        """Unique, and never changes; it is the first index unless another slot has that number."""
        self.index = index
        """The driver's last known index of the GPU."""
        self.listed = True
        """Whether the GPU is believed to be at this index."""
        self.missed = 0
        """How often the GPUs were counted since another GPU was found at its index."""
        self.uuid: str | None = None
        self.lock = threading.Lock()
        self.current: Reader | None = None
        self.stuck: list[Reader] = []
        """Workers that were replaced while they hung in a driver call, and are still in it."""
        self.reading: Reading | None = None
        self.device: Device | None = None
        """The GPU's last known identity; stays when the GPU is lost."""
        self.problem: str | None = None
        """Why there is no reading, in a few words."""
        self.past = Past()
        """State that outlives a session."""
        self.left_out = False
        """Whether the configuration leaves this GPU out."""

    @property
    def name(self) -> str:
        """The GPU's name in the log."""
        return f"GPU {self.index}" + (f" ({self.uuid})" if self.uuid else "")

    @property
    def suspended(self) -> bool:
        """True while the GPU is asleep and is not woken."""
        return self.problem == SUSPENDED

    def set_problem(self, problem: str | None, level: int = logging.WARNING) -> None:
        """Note why the GPU cannot be read, or that it can (None); log each change."""
        if problem == self.problem:
            return
        if problem is None:
            log.info("%s answers again after: %s", self.name, self.problem)
        else:
            log.log(level, "%s cannot be read: %s", self.name, problem)
        self.problem = problem

    def vacate(self, problem: str | None) -> None:
        """End the worker and drop the reading; `problem` is the reason (None: as before)."""
        with self.lock:
            if self.current is not None:
                self.current.stop()
            self.current = None
            self.reading = None
            if problem is not None:
                self.set_problem(problem)

    def report(self) -> SlotReport:
        """Return what is known of the GPU, for the publisher."""
        return SlotReport(
            self.number, self.device, self.reading, self.problem, dict(self.past.failures)
        )


class Slots:
    """The slots of all GPUs. Hold `lock` during every call; take it before the lock of a slot."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._slots: list[Slot] = []

    def __iter__(self) -> Iterator[Slot]:
        return iter(tuple(self._slots))

    def of(self, uuid: str) -> list[Slot]:
        """Return the slot of this GPU, in a list; an empty list if it was never opened."""
        return [slot for slot in self._slots if slot.uuid == uuid]

    def at(self, index: int) -> list[Slot]:
        """Return the slots at `index`; a new slot if no GPU is known there.

        There may be several after the driver has renumbered the GPUs, until each has looked up
        its index.
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
        """Note which slots have no GPU, now that the driver lists `count` GPUs."""
        for slot in self._slots:
            if slot.listed and slot.index >= count:
                slot.listed = False
                slot.vacate(NOT_LISTED)
            elif not slot.listed:
                slot.missed += 1
                if slot.missed == MISSED_COUNTS:
                    slot.set_problem(NOT_LISTED)

    def claim(self, slot: Slot, uuid: str) -> bool:
        """Return whether `slot` may read GPU `uuid`, which the driver has at the slot's index.

        If not, the slot's worker is ended: the GPU has another slot, or the slot another GPU.
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
        """Let `owner` know that its GPU was found at the index of `slot`."""
        for source, count in slot.past.failures.items() if slot.uuid is None else ():
            owner.past.failures[source] = owner.past.failures.get(source, 0) + count
        worker = owner.current
        if worker is None or not owner.listed:
            self.move(owner, slot.index)
        else:  # it looks up the index itself
            worker.verify = True
            worker.retry()

    def move(self, slot: Slot, index: int) -> None:
        """Note that the GPU of `slot` is at `index` now."""
        if slot.listed and slot.index == index:
            return
        if slot.index != index:
            log.info("%s is GPU %d from now on", slot.name, index)
        slot.index = index
        slot.listed = True
