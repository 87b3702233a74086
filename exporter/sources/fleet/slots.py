# SPDX-License-Identifier: Apache-2.0
"""Which GPUs have been seen, at which index each is now, and which thread reads it."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import count
from queue import SimpleQueue

from exporter.clock import Clock
from exporter.model.reading import SUSPENDED, Device, Reading, SlotReport
from exporter.sources.fleet.problems import Problems
from exporter.sources.reading_state import Past

NOT_LISTED = "the driver does not list it any more"
MISSED_COUNTS = 3
"""After how many counts a GPU is gone if another has its index: it may only have moved."""

log = logging.getLogger(__name__)


class Reader(ABC):
    """What reads a GPU in a thread of its own, one requested round at a time."""

    def __init__(self, index: int, generation: int, clock: Clock, stale_seconds: float) -> None:
        self.thread = threading.Thread(target=self.run, name=f"gpu-{index}", daemon=True)
        self.generation = generation
        self._clock = clock
        self._stale_seconds = stale_seconds
        self._commands: SimpleQueue[None] = SimpleQueue()
        self._next_attempt = float("-inf")
        self.verify = False
        """Whether to look up the GPU's index in the next round."""
        self.stopping = False
        self.busy_since: float | None = None
        """Monotonic time at which the present driver call began; None between rounds."""
        self.idle = threading.Event()
        """Cleared from the request for a round until its end."""
        self.idle.set()

    @abstractmethod
    def run(self) -> None:
        """Make rounds as requested, until stopped."""

    def ask(self) -> None:
        """Start a round."""
        self.idle.clear()
        self._commands.put(None)

    def stop(self) -> None:
        """End the thread after its present driver call."""
        self.stopping = True
        self._commands.put(None)

    @property
    def hung(self) -> bool:
        """True while a driver call has lasted for `stale_seconds` or longer."""
        since = self.busy_since
        return since is not None and self._clock.monotonic() - since >= self._stale_seconds

    def _progress(self) -> None:
        """Note that a driver call returned: a GPU that is only slow does not hang."""
        if self.busy_since is not None:
            self.busy_since = self._clock.monotonic()


class Slot:
    """One GPU, or before it is opened that at its index: its latest reading, and the worker that
    writes it."""

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
        self.stuck: Reader | None = None
        """A worker of an earlier generation that was inside a driver call when it was ended."""
        self.reading: Reading | None = None
        self.device: Device | None = None
        """The GPU's last known identity; stays when the GPU is lost."""
        self.problem: str | None = None
        """Why there is no reading, in a few words."""
        self.past = Past()
        """State that outlives a session."""
        self.left_out = False

    @property
    def name(self) -> str:
        """The GPU's name in the log."""
        return f"GPU {self.index}" + (f" ({self.uuid})" if self.uuid else "")

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
        """Return the report on the GPU, for the publisher."""
        failures = dict(self.past.failures)
        return SlotReport(self.number, self.device, self.reading, self.problem, failures)


class Slots:
    """The slots of all GPUs, and the driver's state as the workers report it. Hold `lock` while
    looping over slots to change them; take it before the lock of a slot."""

    def __init__(self, problems: Problems) -> None:
        self.lock = threading.RLock()
        self.wake = threading.Event()
        """Set when the supervisor has something to do."""
        self.generation = 0
        """Which initialisation of the library is in use; 0 while the library is not initialised."""
        self.answered = False
        """Whether the driver answered a call on a GPU in this generation, even with an error."""
        self.renumbered = False
        """Whether the indexes of GPUs may have changed since they were opened."""
        self._disowned: set[Slot] = set()
        """GPUs whose last answer was that the library must be initialised again."""
        self._problems = problems
        self._slots: list[Slot] = []

    def __iter__(self) -> Iterator[Slot]:
        return iter(tuple(self._slots))

    def begin(self, generation: int) -> None:
        """Note that the library was initialised."""
        self._disowned.clear()
        self.answered = False
        self.generation = generation

    # Called by workers.

    def may_read(self, worker: Reader, uuid: str) -> bool:
        """Return whether `worker` may read the GPU `uuid`, which it found at its slot's index. It
        is ended if another one reads that GPU."""
        with self.lock:
            slot = next((slot for slot in self._slots if slot.current is worker), None)
            if slot is None or worker.generation != self.generation:
                return False
            known = slot.uuid
            owner = next((each for each in self._slots if each.uuid == uuid), None)
            if owner is slot or (owner is None and known is None):
                slot.uuid = uuid
                return True
            slot.vacate(None)
            if known is None:
                self._slots.remove(slot)
            else:
                slot.listed = False
                slot.missed = 0
            self.renumbered = True
            if known is not None or owner is None or owner.current is None:
                self.wake.set()  # an index is free, or a GPU has one again
            if owner is not None:
                if known is None:
                    owner.past.failures.update(slot.past.failures)
                if owner.current is None:  # else its worker looks up the index itself
                    self._move(owner, slot.index)
            return False

    def moved(self, slot: Slot, index: int) -> None:
        """Note that the slot's GPU has another index, and have its old one looked up."""
        with self.lock:
            self._move(slot, index)
        self.renumbered = True
        self.wake.set()

    def driver_lost(self, generation: int, slot: Slot, reason: str) -> None:
        """Have the library initialised again if all GPUs that answer ask for it, not only some."""
        with self.lock:
            if generation != self.generation:
                return
            self._disowned.add(slot)
            for each in self._slots:
                called = not each.left_out and each.problem != SUSPENDED
                answers = each.current is not None and not each.current.hung
                if called and answers and each not in self._disowned:
                    return
            self.generation = 0
        self._problems.note_driver(reason)
        self.wake.set()

    def driver_answers(self, slot: Slot) -> None:
        """Note that the driver answered a call on the slot's GPU, even with an error."""
        self._disowned.discard(slot)
        if not self.answered:
            self.answered = True
            self._problems.note_driver(None)

    # Called by the supervisor.

    def at(self, index: int) -> list[Slot]:
        """Return the slots at `index`, a new one if no GPU is known there; several after the driver
        has renumbered the GPUs, until each has looked up its index."""
        found = [slot for slot in self._slots if slot.listed and slot.index == index]
        if not found:
            taken = {slot.number for slot in self._slots}
            found = [Slot(next(each for each in count(index) if each not in taken), index)]
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

    def _move(self, slot: Slot, index: int) -> None:
        if slot.listed and slot.index == index:
            return
        if slot.index != index:
            log.info("%s is GPU %d from now on", slot.name, index)
        slot.index = index
        slot.listed = True
