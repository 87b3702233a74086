# SPDX-License-Identifier: Apache-2.0
"""One thread per GPU: opens the GPU, reads it once per round, and opens it again after a fault."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, repeat
from queue import Empty
from typing import Any

import pynvml

from exporter.clock import Clock
from exporter.errors import DeviceGone, DeviceSilent, LibraryUnavailable, SourceError
from exporter.model.reading import SUSPENDED, Device, Reading
from exporter.sources.fleet.session import Session, SessionOptions
from exporter.sources.fleet.slots import Reader, Slot, Slots
from exporter.sources.interface import NodeCounters
from exporter.sources.nvml import NVML
from exporter.sources.nvml.identity import name_of, text
from exporter.sources.nvml.library import Library
from exporter.sources.nvml.probe import Outcome, code_of, outcome_of, raise_if_gone
from exporter.sources.nvml.reader import DeviceChanged
from exporter.sources.proc.pci import gpu_addresses, is_suspended

BACK_OFF_SECONDS = (0.5, 1.0, 2.0, 4.0, 5.0)

log = logging.getLogger(__name__)


class Asleep(Exception):
    """The GPU is asleep, and a driver call would wake it."""


class NotMine(Exception):
    """Another worker reads this GPU, or the configuration leaves it out."""


def back_off() -> Iterator[float]:
    """Return how long to wait after each failure in a row: a recovery shows within ten seconds."""
    return chain(BACK_OFF_SECONDS, repeat(BACK_OFF_SECONDS[-1]))


class Worker(Reader):
    """Reads the GPU of one slot, one round at a time."""

    def __init__(
        self,
        slot: Slot,
        slots: Slots,
        library: Library,
        generation: int,
        options: SessionOptions,
        clock: Clock,
        node_counters: Mapping[str, NodeCounters],
        stale_seconds: float,
    ) -> None:
        super().__init__(slot.index, generation, clock, stale_seconds)
        self.slot = slot
        self._slots = slots
        self._library = library
        self._options = options
        self._node_counters = node_counters
        self._session: Session | None = None
        self._waits = back_off()
        self._address: str | None = None
        """The PCI address of the GPU; None until it is opened."""
        self._left_out = False
        self._answered_at = float("-inf")
        """Monotonic time of the last reading, or of the opening if there is no reading yet."""

    def run(self) -> None:
        """Read the GPU when asked, until stopped or replaced."""
        while not self.stopping:
            wait = None if self._session is None else self._session.between_seconds
            try:
                self._commands.get(timeout=wait)
            except Empty:
                self._work(self._burst)
            else:
                if self.stopping:
                    break
                self._work(self._round)
                self.idle.set()
            if self.slot.current is not self:
                break
        self._close()

    def _work(self, step: Callable[[], None]) -> None:
        """Run `step`; an error in it becomes the slot's problem."""
        self.busy_since = self._clock.monotonic()
        try:
            step()
        except Exception as error:  # a fault of one GPU must not affect another
            self._fail(error)
        finally:
            self.busy_since = None

    def _burst(self) -> None:
        if self._session is not None and not self._sleeps():
            self._session.read_burst()

    def _round(self) -> None:
        if self._left_out and not self.verify:
            return
        self._left_out = False
        try:
            reading = self._reading()
        except NotMine:
            pass
        except Asleep:
            self._slots.driver_answers(self.slot)
            self._hand_over(None, SUSPENDED, logging.INFO)
        else:
            if reading is not None:
                self._answered_at = reading.monotonic_seconds
                self._waits = back_off()
                self._slots.driver_answers(self.slot)
                self._hand_over(reading, None)

    def _leave_out(self) -> None:
        if not self.slot.left_out:
            log.info("%s is left out, as configured", self.slot.name)
        self._left_out = True
        self._slots.driver_answers(self.slot)
        self._hand_over(None, self.slot.problem)

    def _hand_over(
        self, reading: Reading | None, problem: str | None, level: int = logging.WARNING
    ) -> None:
        """Put a reading, or why there is none, into the slot, if this worker still has it."""
        slot = self.slot
        with slot.lock:
            if slot.current is self and not self.stopping:
                slot.reading = reading
                slot.left_out |= self._left_out
                if reading is not None:
                    slot.device = reading.device
                slot.set_problem(problem, level)

    def _sleeps(self) -> bool:
        """Return whether the GPU was opened before, is asleep now, and is not to be woken."""
        options = self._options
        if self._address is None or not options.skip_suspended:
            return False
        return is_suspended(options.sysfs, self._address)

    def _reading(self) -> Reading | None:
        """Return a new reading; None if none is due, or if the last one stays valid."""
        if self._sleeps():
            raise Asleep
        if self._session is None and self._clock.monotonic() < self._next_attempt:
            return None
        try:
            session = self._open() if self._session is None else self._verified(self._session)
            try:
                return session.read()
            except DeviceChanged:
                session = self._reopened()
                self._log_layout(session.device)
                return session.read()
        except DeviceSilent:
            if self._clock.monotonic() - self._answered_at >= self._stale_seconds:
                raise
        except (DeviceChanged, pynvml.NVMLError):
            # A MIG layout does not change in one step: the next round opens the GPU again.
            last = self.slot.reading
            now = self._clock.monotonic()
            if last is None or now - last.monotonic_seconds >= self._stale_seconds:
                raise
            self._close()
        return None  # the last reading stays valid until it is stale

    def _log_layout(self, device: Device) -> None:
        """Log how the GPU is divided now, if that has changed."""
        before = self.slot.device
        if before is not None and (before.mig, before.instances) == (device.mig, device.instances):
            return
        profiles = ", ".join(each.profile for each in device.instances) or "no instance"
        log.info("%s: MIG is %s", self.slot.name, f"on: {profiles}" if device.mig else "off")

    def _verified(self, session: Session) -> Session:
        """Return the session, or a new one if the GPU's index is to be verified and has changed."""
        if not self.verify:
            return session
        self.verify = False
        index = session.index()
        if index is None or index == self.slot.index:
            return session
        self._slots.moved(self.slot, index)
        return self._reopened()

    def _reopened(self) -> Session:
        self._close()
        return self._open()

    def _open(self) -> Session:
        self.verify = False
        index = self.slot.index
        handle = self._handle(index)
        uuid = text("nvmlDeviceGetUUID", handle)
        if not self._slots.may_read(self, uuid):
            raise NotMine  # this worker was ended
        if not self._options.selection.admits(index, uuid):
            self._leave_out()
            raise NotMine
        self.slot.left_out = False
        try:
            session = Session(
                handle,
                index,
                self._options,
                self._clock,
                self.slot.past,
                self._progress,
                node=self._node_counters,
            )
        except (DeviceGone, pynvml.NVMLError):
            if self.slot.device is None:
                self.slot.device = Device(index, uuid, name_of(handle))
            raise
        self._session = session
        self._address = session.device.pci_bus_id
        self._answered_at = self._clock.monotonic()
        return session

    def _handle(self, index: int) -> Any:
        """Return a handle of the GPU; raise Asleep if it sleeps.

        To ask the driver for the index of a GPU would wake it. So while one is asleep, those that
        are awake are opened by their PCI addresses; if none of them has this index, it sleeps.
        """
        options = self._options
        addresses = gpu_addresses(options.sysfs) if options.skip_suspended else ()
        awake = [each for each in addresses if not is_suspended(options.sysfs, each)]
        if len(awake) == len(addresses):
            return self._library.handle(index)
        for address in awake:
            try:
                handle = pynvml.nvmlDeviceGetHandleByPciBusId(address)
                if pynvml.nvmlDeviceGetIndex(handle) == index:
                    return handle
            except pynvml.NVMLError as error:  # the refusal may come from another GPU
                if outcome_of(code_of(error)) is Outcome.LIBRARY_STATE:
                    raise
        raise Asleep

    def _fail(self, error: Exception) -> None:
        try:
            raise_if_gone(code_of(error))
        except SourceError as known:
            error = known
        problem = str(error) or type(error).__name__
        if isinstance(error, pynvml.NVMLError):
            problem = f"its driver calls fail: {problem}"
        if not isinstance(error, (DeviceGone, LibraryUnavailable)):
            self.slot.past.failures[NVML] += 1
            log.debug("%s", self.slot.name, exc_info=True)
        self._close()
        self._next_attempt = self._clock.monotonic() + next(self._waits)
        self._hand_over(None, problem)
        if isinstance(error, LibraryUnavailable):
            self._slots.driver_lost(self.generation, self.slot, problem)
        else:
            self._slots.driver_answers(self.slot)

    def _close(self) -> None:
        session, self._session = self._session, None
        try:
            if session is not None:
                session.close()
        except Exception:  # the driver may be gone already
            log.debug("%s: closing failed", self.slot.name, exc_info=True)
