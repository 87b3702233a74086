# SPDX-License-Identifier: Apache-2.0
"""Xids from NVML events, for which a thread waits."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from exporter.clock import Clock
from exporter.sources.nvml.identity import text
from exporter.sources.nvml.library import Library
from exporter.sources.nvml.probe import REFUSALS, Outcome, code_of, outcome_of, retry_seconds

XID = pynvml.nvmlEventTypeXidCriticalError
WAIT_MILLISECONDS = 1000
NOTHING_TO_WAIT_FOR_SECONDS = 0.25
SHORTEST_WAIT_SECONDS = 0.05
"""If a wait without an event is shorter, the driver does not wait: pause before the next."""
AGAIN_SECONDS = 5.0
"""Until the next try, after an error."""

log = logging.getLogger(__name__)


class XidEvents:
    """Waits for Xids of every GPU that can be read, within one generation of the library."""

    def __init__(
        self,
        library: Library,
        gpus: Callable[[], Mapping[int, str]],
        note: Callable[[str, int], None],
        clock: Clock,
    ) -> None:
        """`gpus` returns the UUIDs of readable GPUs by index; `note` takes a UUID and an Xid."""
        self.thread = threading.Thread(target=self.run, name="xid-events", daemon=True)
        self._library = library
        self._gpus = gpus
        self._note = note
        self._clock = clock
        self._ending = threading.Event()
        self._registered: dict[int, str] = {}
        self._refusing: set[str] = set()
        """UUIDs of GPUs that could not be registered."""
        self._uuids: dict[int, str] = {}
        """By handle: the UUID of a lost GPU may not be readable when its event arrives."""
        self._failing = False
        self._not_before: dict[str, float] = {}
        """By UUID: when to register again."""

    def stop(self) -> None:
        """End the thread after its present wait, which takes at most a second, without a further
        driver call: the library may be initialised again."""
        self._ending.set()

    def run(self) -> None:
        """Watch until stopped; after an error start again."""
        while not self._ending.is_set():
            events = None
            try:
                events = pynvml.nvmlEventSetCreate()
                self._watch(events)
            except Exception as error:  # no other error of the driver may end the thread
                if events is None and code_of(error) in REFUSALS:
                    log.info("the driver has no Xid events: %s", error)
                    return
                if events is not None and not self._ending.is_set():
                    with contextlib.suppress(Exception):
                        pynvml.nvmlEventSetFree(events)
                self._back_off(error)

    def _back_off(self, error: Exception) -> None:
        # The workers report that the library has to be initialised again.
        known = outcome_of(code_of(error)) is Outcome.LIBRARY_STATE
        if not self._failing and not known:
            log.warning("waiting for Xid events failed: %s; trying again", error)
        self._failing = True
        self._ending.wait(AGAIN_SECONDS)

    def _watch(self, events: Any) -> None:
        self._registered.clear()
        while not self._ending.is_set():
            self._register(events)
            if self._registered:
                self._wait(events)
            else:
                self._ending.wait(NOTHING_TO_WAIT_FOR_SECONDS)

    def _register(self, events: Any) -> None:
        """Register GPUs that are new or readable again; raise NVMLError if the set is of no use."""
        gpus = self._gpus()
        if gpus == self._registered:
            return
        # A GPU that cannot be read now must be registered again later.
        self._registered = {i: uuid for i, uuid in self._registered.items() if gpus.get(i) == uuid}
        for index, uuid in gpus.items():
            now = self._clock.monotonic()
            if index in self._registered or now < self._not_before.get(uuid, now):
                continue
            try:
                self._register_gpu(events, index, uuid)
            except pynvml.NVMLError as error:
                code = code_of(error)
                never = code in REFUSALS
                wait = retry_seconds(code, worked=False) if never else AGAIN_SECONDS
                self._not_before[uuid] = now + wait
                if uuid not in self._refusing:
                    self._refusing.add(uuid)
                    said = " has no Xid events" if never else ": registering for Xids failed"
                    level = logging.INFO if never else logging.WARNING
                    log.log(level, "GPU %d (%s)%s: %s", index, uuid, said, error)
                if code == pynvml.NVML_ERROR_UNKNOWN:  # nvml.h: free the set after this one
                    raise
            else:
                self._refusing.discard(uuid)

    def _register_gpu(self, events: Any, index: int, uuid: str) -> None:
        handle = self._library.handle(index)
        if text("nvmlDeviceGetUUID", handle) != uuid:
            return  # the indexes have changed since that GPU was read
        wanted = XID & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
        if not wanted:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._uuids[_address(handle)] = uuid
        pynvml.nvmlDeviceRegisterEvents(handle, wanted, events)
        self._registered[index] = uuid

    def _wait(self, events: Any) -> None:
        started = self._clock.monotonic()
        try:
            event = pynvml.nvmlEventSetWait_v2(events, WAIT_MILLISECONDS)
        except pynvml.NVMLError_Timeout:
            self._failing = False
            if self._clock.monotonic() - started < SHORTEST_WAIT_SECONDS:
                self._ending.wait(NOTHING_TO_WAIT_FOR_SECONDS)
            return
        self._failing = False
        uuid = self._uuids.get(_address(event.device))
        if event.eventType == XID and uuid is not None:
            self._note(uuid, int(event.eventData))


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
