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
from exporter.errors import DeviceGone, LibraryUnavailable, SourceError
from exporter.reading import SUSPENDED, Device, Reading
from exporter.session import Session, SessionOptions
from exporter.sources.identity import minimal_device, text
from exporter.sources.library import Library
from exporter.sources.nvml import MigChanged
from exporter.sources.probe import Outcome, code_of, outcome_of, raise_if_gone
from exporter.sources.suspended import gpu_addresses, is_suspended

BURST_INTERVAL_SECONDS = 0.1
BACK_OFF_SECONDS = (0.5, 1.0, 2.0, 4.0, 5.0)

log = logging.getLogger(__name__)


class Asleep(Exception):
    """The GPU sleeps, and a driver call would wake it."""


class LeftOut(Exception):
    """The configuration does not want this GPU read."""


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
    """What a worker tells whoever started it."""

    def driver_lost(self, generation: int, index: int, reason: str) -> None:
        """Hear that GPU `index` says that the library must be initialised again."""

    def driver_answers(self, index: int) -> None:
        """Hear that GPU `index` was read."""


class Slot:
    """The place of one GPU index: its latest reading, and the worker that may fill it.

    Several threads may be stuck in the driver for one GPU; only `current` hands over readings.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.lock = threading.Lock()
        self.current: Worker | None = None
        self.stuck: list[Worker] = []
        """Workers that were replaced while inside a call and have not come back."""
        self.reading: Reading | None = None
        self.device: Device | None = None
        """The identity last seen here; outlives a lost GPU."""
        self.problem: str | None = None
        """Why there is no reading, in one phrase."""
        self.failures: dict[str, int] = {}
        """Failed reads by source."""
        self.uuid: str | None = None
        """Learned in order to decide whether to read this GPU."""
        self.left_out = False
        """True once the configuration was found not to want this GPU."""

    @property
    def suspended(self) -> bool:
        """True while the GPU sleeps and is not woken."""
        return self.problem == SUSPENDED

    def set_problem(self, problem: str | None, level: int = logging.WARNING) -> None:
        """Note why the GPU cannot be read, or that it can; log each change once."""
        if problem == self.problem:
            return
        name = f"GPU {self.index}" + (f" ({self.device.uuid})" if self.device else "")
        if problem is None:
            log.info("%s answers again after: %s", name, self.problem)
        else:
            log.log(level, "%s cannot be read: %s", name, problem)
        self.problem = problem


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
        done: Callable[[Worker], None],
        hung_after_seconds: float,
    ) -> None:
        super().__init__(name=f"gpu-{slot.index}", daemon=True)
        self.slot = slot
        self._library = library
        self.generation = generation
        self._options = options
        self._clock = clock
        self._supervisor = supervisor
        self._done = done
        self._hung_after_seconds = hung_after_seconds
        self._commands: SimpleQueue[bool] = SimpleQueue()
        self._session: Session | None = None
        self._back_off = BackOff()
        self._next_attempt = float("-inf")
        self._address: str | None = None
        """The GPU's PCI address, once this worker has opened it."""
        self._left_out = False
        self.stopping = False
        self.busy_since: float | None = None
        """Monotonic time at which the round or burst under way began; None between them."""
        self.asked = False
        """True from the asking for a round until it is over."""

    def ask(self) -> None:
        """Start a round, unless one is still under way."""
        if not self.asked:
            self.asked = True
            self._commands.put(True)

    def stop(self) -> None:
        """End the thread after the call that it may be in."""
        self.stopping = True
        self._commands.put(False)

    @property
    def hung(self) -> bool:
        """True while a driver call has lasted for too long."""
        since = self.busy_since
        return since is not None and self._clock.monotonic() - since >= self._hung_after_seconds

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
        if self._left_out:
            return
        try:
            self._read()
        except Asleep:
            with self.slot.lock:
                if self.slot.current is self and not self.stopping:
                    self.slot.reading = None
                    self.slot.set_problem(SUSPENDED, logging.INFO)
        except LeftOut:
            self._left_out = True
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
        try:
            reading = session.read()
        except MigChanged:
            self._close()
            reading = self._open().read()
        self._back_off.reset()
        self._supervisor.driver_answers(self.slot.index)
        with self.slot.lock:
            if self.slot.current is self and not self.stopping:
                self.slot.reading = reading
                self.slot.device = reading.device
                self.slot.set_problem(None)

    def _open(self) -> Session:
        handle = self._handle()
        self._check_selection(handle)
        try:
            session = Session(
                handle, self.slot.index, self._options, self._clock, self.slot.failures
            )
        except (DeviceGone, pynvml.NVMLError):
            if self.slot.device is None:
                self._remember_identity(handle)
            raise
        self._session = session
        self._address = session.device.pci_bus_id
        return session

    def _handle(self) -> Any:
        """Open the GPU without waking one that sleeps.

        Which index a sleeping GPU has cannot be asked without waking it: while one sleeps, GPUs
        are opened by their addresses, and the index that none of those awake has is asleep.
        """
        index, options = self.slot.index, self._options
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

    def _check_selection(self, handle: Any) -> None:
        """Ask the GPU for its UUID if that decides whether to read it; raise LeftOut if not."""
        slot, selection = self.slot, self._options.selection
        if selection.admits(slot.index) is None:
            slot.uuid = text("nvmlDeviceGetUUID", handle)
            if not selection.admits(slot.index, slot.uuid):
                log.info("GPU %d (%s) is left out, as configured", slot.index, slot.uuid)
                raise LeftOut
        slot.left_out = False

    def _remember_identity(self, handle: Any) -> None:
        try:
            self.slot.device = minimal_device(handle, self.slot.index)
        except Exception:  # it was only worth a try
            log.debug("GPU %d does not tell its UUID", self.slot.index, exc_info=True)

    def _fail(self, error: Exception) -> None:
        try:
            raise_if_gone(code_of(error))
        except SourceError as known:
            error = known
        problem = str(error) or type(error).__name__
        if not isinstance(error, (DeviceGone, LibraryUnavailable)):
            self.slot.failures["nvml"] = self.slot.failures.get("nvml", 0) + 1
            log.debug("GPU %d", self.slot.index, exc_info=True)
        self._close()
        self._next_attempt = self._clock.monotonic() + self._back_off.next_wait_seconds()
        with self.slot.lock:
            if self.slot.current is self and not self.stopping:
                self.slot.reading = None
                self.slot.set_problem(problem)
        if isinstance(error, LibraryUnavailable):
            self._supervisor.driver_lost(self.generation, self.slot.index, problem)

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        try:
            session.close()
        except Exception:  # the driver may be gone already
            log.debug("GPU %d: closing failed", self.slot.index, exc_info=True)
