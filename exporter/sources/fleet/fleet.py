# SPDX-License-Identifier: Apache-2.0
"""Which GPUs the driver has, and one running worker thread for each of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import pynvml

from exporter.clock import Clock
from exporter.errors import LibraryUnavailable
from exporter.model.readers import CounterState
from exporter.model.reading import SlotReport, XidRecord
from exporter.sources.fleet.problems import Problems, in_words
from exporter.sources.fleet.session import NO_NODE_COUNTERS, SessionOptions
from exporter.sources.fleet.slots import Reader, Slot, Slots
from exporter.sources.fleet.worker import Worker, back_off
from exporter.sources.interface import NodeCounters
from exporter.sources.nvml import NVML
from exporter.sources.nvml.library import Library
from exporter.sources.nvml.probe import LIBRARY_REASONS, Outcome, code_of, outcome_of
from exporter.sources.proc.pci import DeviceCounts
from exporter.sources.selection import Admission
from exporter.sources.xids.watch import XidWatch

ENUMERATION_INTERVAL_SECONDS = 5.0
DRAIN_SECONDS = 0.5
SLOW_INIT_SECONDS = 5.0
HEAD_START_SECONDS = 0.002
"""How long a round waits for one worker before it asks the next."""
HUNG = "hung: a driver call does not return"
EVERY_GPU_LEFT_OUT = "every GPU is left out by --gpu.include or --gpu.exclude"


class Fleet:
    """Keeps the driver library initialised and one worker per GPU reading. A thread initialises and
    enumerates, because both may hang; the publisher never waits for it."""

    name = NVML

    def __init__(
        self,
        library: Library,
        options: SessionOptions,
        clock: Clock,
        stale_seconds: float,
        *,
        enabled: bool = True,
        kernel_log: str | None = None,
        node_counters: Mapping[str, NodeCounters] = NO_NODE_COUNTERS,
    ) -> None:
        """Read by `options`; `node_counters` are started and stopped with the fleet."""
        self._library = library
        self.options = options
        self.node_counters = node_counters
        """The counter sources that read all GPUs at once, by name."""
        self._clock = clock
        self.stale_seconds = stale_seconds
        """A call that lasts this long counts as hung."""
        self._problems = Problems(None if enabled else f"the source {NVML} is switched off")
        self._slots = Slots(self._problems)
        self._stopping = False
        self._initialising_since: float | None = None
        self.failed_initialisations = 0
        self._count = 0
        """How many GPUs the driver listed when they were last counted."""
        self._enabled = enabled
        self._admission = Admission(options.selection)
        self._counts = DeviceCounts(options.sysfs, options.procfs, clock)
        self._xids = XidWatch(library, clock, kernel_log)
        self._thread = threading.Thread(target=self._supervise, name="driver", daemon=True)

    def start(self) -> None:
        """Start to look for the driver and its GPUs."""
        if self._enabled:
            for counters in self.node_counters.values():
                counters.start()
            self._xids.start()
            self._thread.start()

    def stop(self) -> None:
        """End the threads; one that is inside a driver call is not waited for. NVML is not shut
        down: the process is ending, and a shutdown under a call would crash it."""
        self._stopping = True
        self._slots.wake.set()
        with self._slots.lock:
            workers = self._workers()
        self._end(workers)
        for counters in self.node_counters.values():
            counters.stop()
        self._xids.stop()

    def _workers(self) -> list[Reader]:
        return [slot.current for slot in self._slots if slot.current is not None]

    def _end(self, workers: Iterable[Reader]) -> None:
        for worker in workers:
            worker.stop()
        deadline = self._clock.monotonic() + DRAIN_SECONDS
        for worker in workers:
            worker.thread.join(max(0.0, deadline - self._clock.monotonic()))

    @property
    def problem(self) -> str | None:
        """Why no GPU can be read, in one line; None if the driver answers."""
        slots = list(self._slots)
        known = bool(self._admission.refused) or bool(slots)
        left_out = known and all(slot.left_out for slot in slots)
        return self._problems.first or (EVERY_GPU_LEFT_OUT if left_out else None)

    @property
    def counter_states(self) -> Mapping[str, CounterState]:
        """The states of the counter sources in use that read all GPUs at once."""
        states = ((name, counters.state) for name, counters in self.node_counters.items())
        return {name: state for name, state in states if state is not None}

    # The supervisor's thread.

    def _supervise(self) -> None:
        waits = back_off()
        while not self._stopping:
            self._slots.wake.clear()
            try:
                if self._slots.generation == 0:
                    self._initialise()
                self._enumerate()
            except LibraryUnavailable as error:
                self._slots.generation = 0
                self.failed_initialisations += 1
                self._problems.note_driver(str(error))
            except Exception as error:  # without this thread no GPU would be found again
                self._problems.note_supervisor(error)
            else:
                self._problems.note_supervisor(None)
                self._slots.wake.wait(ENUMERATION_INTERVAL_SECONDS)
                if self._slots.answered:
                    waits = back_off()
                    continue
                if self._slots.generation != 0 or self._stopping:
                    continue
                self._slots.wake.clear()  # the library was lost before a single GPU had answered
            self._slots.wake.wait(next(waits))

    def _initialise(self) -> None:
        self._counts.count(None)
        self._retire_workers()
        self._initialising_since = self._clock.monotonic()
        try:
            generation = self._library.start()
        finally:
            self._initialising_since = None
        self._slots.begin(generation)

    def _enumerate(self) -> None:
        """Count the GPUs and start a worker for each that has none; raise LibraryUnavailable."""
        generation = self._slots.generation
        try:
            count = self._library.device_count()
        except pynvml.NVMLError as error:
            code = code_of(error)
            if outcome_of(code) is Outcome.LIBRARY_STATE:
                raise LibraryUnavailable(LIBRARY_REASONS[code or 0]) from error
            self._problems.note_driver(f"counting the GPUs failed: {error}")
            return
        self._counts.count(count)
        admitted = self._admission.admitted(count)
        if not count:
            self._slots.answered = True
            self._problems.note_driver("the driver lists no GPU")
        elif self._slots.answered or not admitted:
            self._problems.note_driver(None)
        else:
            self._problems.driver = None  # not logged: the workers find out whether it answers
        with self._slots.lock:
            if self._stopping:
                return
            renumbered = self._slots.renumbered or count != self._count
            self._slots.renumbered, self._count = False, count
            self._slots.unlist(count)
            for slot in [slot for index in admitted for slot in self._slots.at(index)]:
                worker = slot.current
                if slot.stuck is not None and slot.stuck.thread.is_alive():
                    slot.vacate(HUNG)  # a second thread would hang as well
                elif worker is None or worker.generation != generation:
                    self._start_worker(slot, generation)
                elif renumbered or not slot.left_out:
                    worker.verify = True
        self._admission.check(count, {slot.uuid for slot in self._slots if slot.listed})
        self._xids.driver_started()

    def _start_worker(self, slot: Slot, generation: int) -> None:
        """Start a worker that takes over the slot, or note why it could not be started."""
        try:
            shared = self._slots, self._library, generation, self.options, self._clock
            worker = Worker(slot, *shared, self.node_counters, self.stale_seconds)
            worker.thread.start()
        except Exception as error:  # one GPU without a worker must not affect the others
            slot.vacate(f"no thread can be started for it: {in_words(error)}")
        else:
            slot.current = worker

    def _retire_workers(self) -> None:
        """End all workers, and shut NVML down if none of them is inside a driver call."""
        with self._slots.lock:
            workers = {slot: slot.current for slot in self._slots if slot.current is not None}
            for slot in self._slots:
                slot.vacate(None)
                # The driver's problem is in the log already: no line for each GPU.
                slot.problem = self._problems.driver or "the driver library is initialised again"
        drained = self._xids.driver_ended()
        self._end(workers.values())
        with self._slots.lock:
            for slot in self._slots:
                ended = workers.get(slot, slot.stuck)
                slot.stuck = ended if ended is not None and ended.thread.is_alive() else None
                drained = drained and slot.stuck is None
        if drained:
            self._library.stop()

    # Called by the publisher.

    def round(self, wait_seconds: float) -> None:
        """Have every GPU read; wait at most `wait_seconds` for those that do not hang."""
        self._watch()
        workers = [worker for worker in self._workers() if worker.idle.is_set()]
        deadline = self._clock.monotonic() + wait_seconds
        # One after the other while the driver is quick: threads that all wake at once spend more
        # time on passing the interpreter's lock to each other than on reading.
        head_start = min(HEAD_START_SECONDS, wait_seconds / (2 * len(workers) or 1))
        for worker in workers:
            worker.ask()
            worker.idle.wait(head_start)
        for worker in workers:
            worker.idle.wait(max(0.0, deadline - self._clock.monotonic()))
        self._xids.update(self.reports())

    def _watch(self) -> None:
        """Find calls that hang."""
        now = self._clock.monotonic()
        since = self._initialising_since
        if since is not None and now - since >= SLOW_INIT_SECONDS:
            self._problems.note_driver("NVML's initialisation does not return")
        for slot in self._slots:
            with slot.lock:
                if slot.current is not None and slot.current.hung:
                    slot.reading = None
                    slot.set_problem(HUNG)

    def xids(self) -> Mapping[str, Mapping[int, XidRecord]]:
        """Return the Xids seen so far, by UUID."""
        return self._xids.ledger.records()

    def devices(self) -> Mapping[str, int]:
        """Return how many GPUs there are, by where they were counted: pci, driver and nvml."""
        return self._counts.read()

    def reports(self) -> list[SlotReport]:
        """Return the reports on all GPUs seen so far that no filter excludes."""
        return [slot.report() for slot in self._slots if not slot.left_out]
