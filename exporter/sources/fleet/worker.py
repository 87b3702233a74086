# SPDX-License-Identifier: Apache-2.0
"""One thread per GPU: opens it, reads it when asked, and survives whatever the driver does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import pynvml

from exporter.clock import Clock
from exporter.errors import DeviceGone, DeviceSilent, LibraryUnavailable, SourceError
from exporter.model.reading import SUSPENDED
from exporter.sources.fleet.session import Session, SessionOptions
from exporter.sources.fleet.slots import Reader, Slot
from exporter.sources.nvml import NVML
from exporter.sources.nvml.identity import minimal_device, text
from exporter.sources.nvml.library import Library
from exporter.sources.nvml.probe import Outcome, code_of, outcome_of, raise_if_gone
from exporter.sources.nvml.reader import DeviceChanged
from exporter.sources.proc.suspended import gpu_addresses, is_suspended

BURST_INTERVAL_SECONDS = 0.1
BACK_OFF_SECONDS = (0.5, 1.0, 2.0, 4.0, 5.0)

log = logging.getLogger(__name__)


class Asleep(Exception):
    """The GPU sleeps, and a driver call would wake it."""


class LeftOut(Exception):
    """The configuration does not want this GPU read."""


class Displaced(Exception):
    """The GPU is not this worker's to read, or not any more."""


class BackOff:
    """Waits that grow to five seconds, so that recovery shows within ten."""

    def __init__(self) -> None:
        self._failures = 0

    def next_wait_seconds(self) -> float:
        """Return how long to wait after one more failure."""
        wait = BACK_OFF_SECONDS[min(self._failures, len(BACK_OFF_SECONDS) - 1)]
        self._failures += 1
        return wait

    def reset(self) -> None:
        """Start over after a success."""
        self._failures = 0


class Supervisor(Protocol):
    """Whom a worker asks what it may read, and tells what came of it."""

    def may_read(self, worker: Worker, uuid: str) -> bool:
        """Return whether the GPU `uuid`, found at the index of the worker's slot, is its to read.

        If not, the worker is ended.
        """

    def moved(self, slot: Slot, index: int) -> None:
        """Hear that the slot's GPU has another index now."""

    def driver_lost(self, generation: int, slot: Slot, reason: str) -> None:
        """Hear that the slot's GPU says that the library must be initialised again."""

    def driver_answers(self, slot: Slot) -> None:
        """Hear that the driver answered for the slot's GPU, whatever it said."""


class Worker(threading.Thread):
    """Reads the GPU of one slot, one round at a time."""

    def __init__(
        self,
        slot: Slot,
        library: Library,
        generation: int,
        options: SessionOptions,
        clock: Clock,
        supervisor: Supervisor,
        done: Callable[[Reader], None],
        stale_seconds: float,
    ) -> None:
        super().__init__(name=f"gpu-{slot.index}", daemon=True)
        self.slot = slot
        self._library = library
        self.generation = generation
        self._options = options
        self._clock = clock
        self._supervisor = supervisor
        self._done = done
        self._stale_seconds = stale_seconds
        self._commands: SimpleQueue[bool] = SimpleQueue()
        self._session: Session | None = None
        self._back_off = BackOff()
        self._next_attempt = float("-inf")
        self._address: str | None = None
        """The GPU's PCI address, once this worker has opened it."""
        self._left_out = False
        self._answered_at = float("-inf")
        """Monotonic time of the last reading; of the opening before there is one."""
        self.verify = False
        """Whether to look up the GPU's index with the next round."""
        self.stopping = False
        self.busy_since: float | None = None
        """Monotonic time at which the driver call under way began; None between rounds."""
        self.asked = False
        """True from the asking for a round until it is over."""

    def ask(self) -> None:
        """Start a round, unless one is still under way."""
        if not self.asked:
            self.asked = True
            self._commands.put(True)

    def retry(self) -> None:
        """Open the GPU with the next round, however long that was to wait."""
        self._next_attempt = float("-inf")

    def stop(self) -> None:
        """End the thread after the call that it may be in."""
        self.stopping = True
        self._commands.put(False)

    @property
    def hung(self) -> bool:
        """True while a driver call has lasted for too long."""
        since = self.busy_since
        return since is not None and self._clock.monotonic() - since >= self._stale_seconds

    def _progress(self) -> None:
        """Note that the driver goes on answering: a slow GPU does not hang."""
        if self.busy_since is not None:
            self.busy_since = self._clock.monotonic()

    def run(self) -> None:
        """Serve rounds until stopped or superseded."""
        while not self.stopping:
            wants_burst = self._session is not None and self._session.wants_burst
            try:
                self._commands.get(timeout=BURST_INTERVAL_SECONDS if wants_burst else None)
            except Empty:
                self._work(self._burst)
            else:
                if self.stopping:
                    break
                self._work(self._round)
                self.asked = False
                self._done(self)
            if not self._keeps_slot():
                break
        self._close()

    def _work(self, step: Callable[[], None]) -> None:
        """Run `step`; whatever goes wrong in it becomes the slot's problem."""
        self.busy_since = self._clock.monotonic()
        try:
            step()
        except Exception as error:  # one GPU's fault must not reach another
            self._fail(error)
        finally:
            self.busy_since = None

    def _keeps_slot(self) -> bool:
        """Decide who owns the slot after a call that may have been stuck."""
        slot = self.slot
        with slot.lock:
            if self in slot.stuck:
                slot.stuck.remove(self)
                if slot.current is not None and slot.current.hung and not self.stopping:
                    # The replacement is stuck as well: the one that came back takes over.
                    slot.stuck.append(slot.current)
                    slot.current = self
            return slot.current is self

    def _burst(self) -> None:
        if self._session is not None and not self._sleeps():
            self._session.read_burst()

    def _round(self) -> None:
        if self._left_out and not self.verify:
            return
        self._left_out = False
        try:
            self._read()
        except Displaced:
            pass  # whoever decided that has ended this worker, unless it was superseded before
        except Asleep:
            self._supervisor.driver_answers(self.slot)
            with self.slot.lock:
                if self.slot.current is self and not self.stopping:
                    self.slot.reading = None
                    self.slot.set_problem(SUSPENDED, logging.INFO)
        except LeftOut:
            self._left_out = True
            self._supervisor.driver_answers(self.slot)
            with self.slot.lock:
                if self.slot.current is self and not self.stopping:
                    self.slot.reading = None
                    self.slot.left_out = True

    def _sleeps(self) -> bool:
        """Return whether the GPU, once opened, sleeps and is to be left asleep."""
        address = self._address
        return (
            self._options.skip_suspended
            and address is not None
            and is_suspended(self._options.sysfs, address)
        )

    def _read(self) -> None:
        if self._sleeps():
            raise Asleep
        session = self._session
        if session is None:
            if self._clock.monotonic() < self._next_attempt:
                return
            session = self._open()
        elif self.verify:
            session = self._verified(session)
        try:
            reading = session.read()
        except DeviceChanged:
            reading = self._reopened().read()
        except DeviceSilent:
            if self._clock.monotonic() - self._answered_at < self._stale_seconds:
                return  # the last reading stands until it is stale
            raise
        self._answered_at = reading.monotonic_seconds
        self._back_off.reset()
        self._supervisor.driver_answers(self.slot)
        with self.slot.lock:
            if self.slot.current is self and not self.stopping:
                self.slot.reading = reading
                self.slot.device = reading.device
                self.slot.set_problem(None)

    def _verified(self, session: Session) -> Session:
        """Return a session on the GPU under the index that it has by now."""
        self.verify = False
        index = session.index()
        if index is None or index == self.slot.index:
            return session
        self._supervisor.moved(self.slot, index)
        return self._reopened()

    def _reopened(self) -> Session:
        self._close()
        return self._open()

    def _open(self) -> Session:
        self.verify = False
        index = self.slot.index
        handle = self._handle(index)
        uuid = text("nvmlDeviceGetUUID", handle)
        if not self._supervisor.may_read(self, uuid):
            raise Displaced
        if not self._options.selection.admits(index, uuid):
            if not self.slot.left_out:
                log.info("%s is left out, as configured", self.slot.name)
            raise LeftOut
        self.slot.left_out = False
        try:
            session = Session(
                handle, index, self._options, self._clock, self.slot.past, self._progress
            )
        except (DeviceGone, pynvml.NVMLError):
            if self.slot.device is None:
                self._remember_identity(handle)
            raise
        self._session = session
        self._address = session.device.pci_bus_id
        self._answered_at = self._clock.monotonic()
        return session

    def _handle(self, index: int) -> Any:
        """Open the GPU without waking one that sleeps.

        Which index a sleeping GPU has cannot be asked without waking it: while one sleeps, GPUs
        are opened by their addresses, and the index that none of those awake has is asleep.
        """
        options = self._options
        addresses = gpu_addresses(options.sysfs) if options.skip_suspended else ()
        awake = [each for each in addresses if not is_suspended(options.sysfs, each)]
        if len(awake) == len(addresses):
            return self._library.handle(index)
        for address in awake:
            try:
                handle = self._library.handle_at(address, index)
            except pynvml.NVMLError as error:
                if outcome_of(code_of(error)) is Outcome.LIBRARY_STATE:
                    raise
                continue  # it may not be this GPU that refuses
            if handle is not None:
                return handle
        raise Asleep

    def _remember_identity(self, handle: Any) -> None:
        try:
            self.slot.device = minimal_device(handle, self.slot.index)
        except Exception:  # it was only worth a try
            log.debug("%s does not tell its name", self.slot.name, exc_info=True)

    def _fail(self, error: Exception) -> None:
        try:
            raise_if_gone(code_of(error))
        except SourceError as known:
            error = known
        problem = str(error) or type(error).__name__
        if isinstance(error, pynvml.NVMLError):
            problem = f"its driver calls fail: {problem}"
        if not isinstance(error, (DeviceGone, LibraryUnavailable)):
            failures = self.slot.past.failures
            failures[NVML] = failures.get(NVML, 0) + 1
            log.debug("%s", self.slot.name, exc_info=True)
        self._close()
        self._next_attempt = self._clock.monotonic() + self._back_off.next_wait_seconds()
        with self.slot.lock:
            if self.slot.current is self and not self.stopping:
                self.slot.reading = None
                self.slot.set_problem(problem)
        if isinstance(error, LibraryUnavailable):
            self._supervisor.driver_lost(self.generation, self.slot, problem)
        else:
            self._supervisor.driver_answers(self.slot)

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        try:
            session.close()
        except Exception:  # the driver may be gone already
            log.debug("%s: closing failed", self.slot.name, exc_info=True)
