# SPDX-License-Identifier: Apache-2.0
"""Which GPUs the driver has, and one living worker for each of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from queue import Empty, SimpleQueue

import pynvml

from exporter.clock import Clock
from exporter.errors import LibraryUnavailable
from exporter.reading import SlotReport, XidRecord
from exporter.session import SessionOptions
from exporter.sources.device_counts import DeviceCounts
from exporter.sources.library import Library
from exporter.sources.probe import LIBRARY_REASONS, Outcome, code_of, outcome_of
from exporter.sources.xid_watch import XidWatch
from exporter.worker import BackOff, Slot, Worker

ENUMERATION_INTERVAL_SECONDS = 5.0
DRAIN_SECONDS = 0.5
SLOW_INIT_SECONDS = 5.0
MOST_STUCK_THREADS = 2
"""A GPU whose worker and replacement are both inside the driver gets no third thread."""
HEAD_START_SECONDS = 0.002
"""How long a round waits for one GPU before it asks the next."""

log = logging.getLogger(__name__)


class Fleet:
    """Keeps the driver library initialised and one worker per GPU reading.

    A supervisor thread initialises and enumerates, because both may hang; the publisher calls
    `round` and `reports` and never waits for the driver.
    """

    name = "nvml"

    def __init__(
        self,
        library: Library,
        options: SessionOptions,
        clock: Clock,
        stale_seconds: float,
        *,
        enabled: bool = True,
        kernel_log: str | None = None,
    ) -> None:
        self._library = library
        self.options = options
        self._clock = clock
        self.stale_seconds = stale_seconds
        """A call that lasts this long counts as hung."""
        self._slots: dict[int, Slot] = {}
        self._lock = threading.Lock()
        self._finished: SimpleQueue[Worker] = SimpleQueue()
        self._wake = threading.Event()
        self._stopping = False
        self._generation = 0
        """The library generation in use; 0 while there is none."""
        self._initialising_since: float | None = None
        self._initialisations_failed = 0
        self._disowned: set[int] = set()
        """GPUs whose last answer was that the library must be initialised again."""
        self._enabled = enabled
        self._problem = None if enabled else "the source nvml is switched off"
        self._refused: set[int] = set()
        """GPUs that are left out by their index."""
        self._selection_checked = False
        self._counts = DeviceCounts(options.sysfs, options.procfs, clock)
        self._xids = XidWatch(library, clock, kernel_log)
        self._thread = threading.Thread(target=self._supervise, name="driver", daemon=True)

    def start(self) -> None:
        """Start looking for the driver and its GPUs."""
        if self._enabled:
            self._xids.start()
            self._thread.start()

    def stop(self) -> None:
        """Let every thread end that can; one inside the driver is left behind.

        NVML is not shut down: the process is ending, and a shutdown under a call would crash it.
        """
        self._stopping = True
        self._wake.set()
        with self._lock:
            workers = [slot.current for slot in self._slots.values() if slot.current is not None]
        self._end(workers)
        self._xids.stop()

    def _end(self, workers: Iterable[Worker]) -> None:
        for worker in workers:
            worker.stop()
        deadline = self._clock.monotonic() + DRAIN_SECONDS
        for worker in workers:
            worker.join(max(0.0, deadline - self._clock.monotonic()))

    @property
    def problem(self) -> str | None:
        """Why there is no driver to ask, in one line; None while there is one."""
        if self._problem is not None:
            return self._problem
        with self._lock:
            read = [slot for slot in self._slots.values() if not slot.left_out]
            left_out = bool(self._refused) or bool(self._slots)
        if left_out and not read:
            return "every GPU is left out by --gpu.include or --gpu.exclude"
        return None

    @property
    def failed_initialisations(self) -> int:
        """How often the driver library could not be initialised."""
        return self._initialisations_failed

    def driver_lost(self, generation: int, index: int, reason: str) -> None:
        """Initialise the library again once every GPU that answers at all says that it must be.

        A code that concerns the library but comes from one GPU only is that GPU's fault.
        """
        with self._lock:
            if generation != self._generation:
                return
            self._disowned.add(index)
            answering = {
                slot.index
                for slot in self._slots.values()
                if slot.current is not None and not slot.current.hung
                # These are not asked.
                if not slot.left_out and not slot.suspended
            }
            if not answering <= self._disowned:
                return
            self._generation = 0
        self._set_problem(reason)
        self._wake.set()

    def driver_answers(self, index: int) -> None:
        """Take note that GPU `index` was read."""
        self._disowned.discard(index)

    def _set_problem(self, problem: str | None) -> None:
        if problem == self._problem:
            return
        if problem is None:
            log.info("the driver answers")
        else:
            log.warning("%s; retrying", problem)
        self._problem = problem

    # The supervisor thread.

    def _supervise(self) -> None:
        back_off = BackOff()
        while not self._stopping:
            self._wake.clear()
            if self._generation == 0:
                self._counts.count(None)
                self._retire_workers()
                try:
                    self._initialise()
                except LibraryUnavailable as error:
                    self._initialisations_failed += 1
                    self._set_problem(str(error))
                    self._wake.wait(back_off.next_wait_seconds())
                    continue
                back_off.reset()
            self._enumerate()
            self._wake.wait(ENUMERATION_INTERVAL_SECONDS)

    def _initialise(self) -> None:
        self._initialising_since = self._clock.monotonic()
        try:
            self._generation = self._library.start()
            self._disowned.clear()
            self._xids.driver_started()
        finally:
            self._initialising_since = None
        self._set_problem(None)

    def _enumerate(self) -> None:
        generation = self._generation
        try:
            count = self._library.device_count()
        except pynvml.NVMLError as error:
            code = code_of(error)
            if outcome_of(code) is Outcome.LIBRARY_STATE:
                self._generation = 0
                self._set_problem(LIBRARY_REASONS[code or 0])
                self._wake.set()
            else:
                self._set_problem(f"counting the GPUs failed: {error}")
            return
        self._counts.count(count)
        self._set_problem(None if count else "the driver lists no GPU")
        with self._lock:
            if self._stopping:
                return
            for index in self._admitted(count):
                slot = self._slots.setdefault(index, Slot(index))
                if len(slot.stuck) >= MOST_STUCK_THREADS:
                    continue  # one of them must come back before another may try
                if slot.current is None or slot.current.generation != generation:
                    self._start_worker(slot, generation)
            for index, slot in self._slots.items():
                if index >= count and slot.current is not None:
                    slot.current.stop()
                    slot.current = None
                    slot.reading = None
                    slot.set_problem("the driver does not list it any more")
        self._check_selection(count)

    def _admitted(self, count: int) -> list[int]:
        """Return the GPUs that their index alone does not leave out; the others are not opened."""
        admitted = []
        for index in range(count):
            if self.options.selection.admits(index) is not False:
                admitted.append(index)
            elif index not in self._refused:
                self._refused.add(index)
                log.info("GPU %d is left out, as configured", index)
        return admitted

    def _check_selection(self, count: int) -> None:
        """Say once which entries of --gpu.include and --gpu.exclude name no GPU."""
        slots = [slot for index, slot in self._slots.items() if index < count]
        uuids = {slot.uuid or (slot.device.uuid if slot.device else None) for slot in slots}
        if self._selection_checked or (None in uuids and self.options.selection.by_uuid):
            return
        self._selection_checked = True
        unmatched = self.options.selection.unmatched(count, {uuid for uuid in uuids if uuid})
        if unmatched:
            log.warning(
                "no GPU is %s, as --gpu.include or --gpu.exclude says", " or ".join(unmatched)
            )

    def _start_worker(self, slot: Slot, generation: int) -> None:
        worker = Worker(
            slot,
            self._library,
            generation,
            self.options,
            self._clock,
            self,
            self._finished.put,
            self.stale_seconds,
        )
        slot.current = worker
        worker.start()

    def _retire_workers(self) -> None:
        """End the workers of the lost generation, and shut NVML down if none is inside a call."""
        with self._lock:
            workers = [slot.current for slot in self._slots.values() if slot.current is not None]
            for slot in self._slots.values():
                with slot.lock:
                    slot.current = None
                    slot.reading = None
                    # The driver's state was logged; one more line per GPU would say nothing new.
                    slot.problem = self._problem or "the driver library is initialised again"
        drained = self._xids.driver_ended()
        if not workers:
            return
        self._end(workers)
        with self._lock:
            for slot in self._slots.values():
                slot.stuck = [
                    worker
                    for worker in (*slot.stuck, *workers)
                    if worker.slot is slot and worker.is_alive()
                ]
            if drained and not any(slot.stuck for slot in self._slots.values()):
                self._library.stop()

    # The publisher's side.

    def round(self, wait_seconds: float) -> None:
        """Ask every worker for a round; wait for those that are not hung, at most so long."""
        self._watch()
        deadline = self._clock.monotonic() + wait_seconds
        with self._lock:
            workers = [slot.current for slot in self._slots.values() if slot.current is not None]
        pending: set[Worker] = set()
        self._collect(pending, 0.0)  # what late workers put there after the last round
        # One after the other as long as the driver is quick: threads that all wake at once spend
        # more time on handing the interpreter to each other than on reading.
        head_start = min(HEAD_START_SECONDS, wait_seconds / (2 * len(workers) or 1))
        for worker in workers:
            if not worker.asked:
                worker.ask()
                pending.add(worker)
                self._collect(pending, head_start)
        self._collect(pending, deadline - self._clock.monotonic())
        self._xids.know(self.reports())

    def _collect(self, pending: set[Worker], wait_seconds: float) -> None:
        """Take finished workers out of `pending` until it is empty or the time is over."""
        deadline = self._clock.monotonic() + wait_seconds
        while True:
            remaining = deadline - self._clock.monotonic()
            try:
                if remaining > 0 and pending:
                    pending.discard(self._finished.get(timeout=remaining))
                else:
                    pending.discard(self._finished.get_nowait())
            except Empty:
                return

    def _watch(self) -> None:
        """Find hung calls; give a GPU whose worker hangs one replacement, and only one."""
        now = self._clock.monotonic()
        since = self._initialising_since
        if since is not None and now - since >= SLOW_INIT_SECONDS:
            self._set_problem("NVML's initialisation does not return")
        with self._lock:
            if self._stopping:
                return
            for slot in self._slots.values():
                worker = slot.current
                if worker is None or not worker.hung:
                    continue
                with slot.lock:
                    if slot.current is not worker or not worker.hung:
                        continue
                    slot.reading = None
                    slot.set_problem("hung: a driver call does not return")
                    if not slot.stuck and worker.generation == self._generation:
                        slot.stuck.append(worker)
                        self._start_worker(slot, worker.generation)

    def xids(self) -> Mapping[str, Mapping[int, XidRecord]]:
        """Return the Xids seen so far, by UUID."""
        return self._xids.records()

    def devices(self) -> Mapping[str, int]:
        """Return how many GPUs are counted, by who counts."""
        return self._counts.read()

    def reports(self) -> list[SlotReport]:
        """Return what is known of every GPU index that was ever seen."""
        with self._lock:
            slots = [slot for slot in self._slots.values() if not slot.left_out]
        return [
            SlotReport(slot.index, slot.device, slot.reading, slot.problem, dict(slot.failures))
            for slot in slots
        ]
