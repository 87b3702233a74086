# SPDX-License-Identifier: Apache-2.0
"""One reading as a chain of driver calls, newest first, with what each error code means for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Generic, TypeVar

import pynvml

from exporter.errors import DeviceGone, LibraryUnavailable

T = TypeVar("T")

log = logging.getLogger(__name__)


class Outcome(Enum):
    """What to do about an error code (nvml.h, nvmlReturn_t)."""

    NEVER = "never"
    NOT_NOW = "not now"
    NO_PERMISSION = "no permission"
    DEVICE_GONE = "device gone"
    LIBRARY_STATE = "library state"
    FAILURE = "failure"


OUTCOMES: Mapping[int, Outcome] = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: Outcome.NEVER,
    # A field, link or sensor that this product does not have.
    pynvml.NVML_ERROR_INVALID_ARGUMENT: Outcome.NEVER,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Outcome.NEVER,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Outcome.NEVER,
    pynvml.NVML_ERROR_DEPRECATED: Outcome.NEVER,
    pynvml.NVML_ERROR_NOT_FOUND: Outcome.NOT_NOW,
    pynvml.NVML_ERROR_TIMEOUT: Outcome.NOT_NOW,
    pynvml.NVML_ERROR_IN_USE: Outcome.NOT_NOW,
    pynvml.NVML_ERROR_NO_DATA: Outcome.NOT_NOW,
    pynvml.NVML_ERROR_NOT_READY: Outcome.NOT_NOW,
    pynvml.NVML_ERROR_INVALID_STATE: Outcome.NOT_NOW,
    pynvml.NVML_ERROR_NO_PERMISSION: Outcome.NO_PERMISSION,
    pynvml.NVML_ERROR_GPU_IS_LOST: Outcome.DEVICE_GONE,
    pynvml.NVML_ERROR_RESET_REQUIRED: Outcome.DEVICE_GONE,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: Outcome.DEVICE_GONE,
    pynvml.NVML_ERROR_UNINITIALIZED: Outcome.LIBRARY_STATE,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Outcome.LIBRARY_STATE,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Outcome.LIBRARY_STATE,
}

OLD_DRIVER_CODES = frozenset(
    {
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
GONE_REASONS: Mapping[int, str] = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost: it fell off the bus or is inaccessible",
    pynvml.NVML_ERROR_RESET_REQUIRED: "needs a reset",
    pynvml.NVML_ERROR_GPU_NOT_FOUND: "not found any more",
}
LIBRARY_REASONS: Mapping[int, str] = {
    pynvml.NVML_ERROR_UNINITIALIZED: "the driver library lost its initialisation",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver library and the kernel driver have different versions (driver updated?)"
    ),
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 was not found",
}


def code_of(error: BaseException) -> int | None:
    """Return the driver's error code behind `error`; None if it is not the driver's.

    ``NVMLError`` objects are unhashable and must not be compared with None: only the number is
    ever kept.
    """
    return int(error.value) if isinstance(error, pynvml.NVMLError) else None


def outcome_of(code: int | None) -> Outcome:
    """Return what to do about `code`; anything unknown is a failure."""
    return Outcome.FAILURE if code is None else OUTCOMES.get(code, Outcome.FAILURE)


def raise_if_gone(code: int | None) -> None:
    """Raise for the codes that concern more than the reading that met them.

    Raises:
        DeviceGone: the GPU is lost, removed or needs a reset.
        LibraryUnavailable: the library must be initialised again.
    """
    outcome = outcome_of(code)
    if code is None or outcome in (Outcome.NEVER, Outcome.NOT_NOW, Outcome.NO_PERMISSION):
        return
    if outcome is Outcome.DEVICE_GONE:
        raise DeviceGone(GONE_REASONS[code])
    if outcome is Outcome.LIBRARY_STATE:
        raise LibraryUnavailable(LIBRARY_REASONS[code])


IDENTITY = "identity"
"""The group of facts that many products lack (a serial number, a NUMA node): no state is kept."""


class Journal:
    """What one GPU's readings met: why groups are absent, and how many reads failed.

    Each change of a group's state is logged once.
    """

    def __init__(self, gpu: str, failures: dict[str, int] | None = None) -> None:
        self._gpu = gpu
        self._failing: dict[str, set[str]] = {}
        self.states: dict[str, str] = {}
        self.failures = {} if failures is None else failures
        """By source; outlives the journal where the caller gave it."""

    def absent(self, group: str, state: str) -> None:
        """Note that `group` cannot be read on this GPU, and why."""
        if group == IDENTITY or self.states.get(group) == state:
            return
        self.states[group] = state
        level = logging.WARNING if state == "no_permission" else logging.DEBUG
        log.log(level, "%s: %s cannot be read: %s", self._gpu, group, state.replace("_", " "))

    def refused(self, source: str, group: str) -> None:
        """Count that the driver denies `group` to this user; it is not asked again."""
        self.failures[source] = self.failures.get(source, 0) + 1
        if group == IDENTITY:
            log.warning("%s: a part of its identity cannot be read: no permission", self._gpu)
        self.absent(group, "no_permission")

    def failed(self, source: str, group: str, message: str) -> None:
        """Count one failed read of `group`; each message is logged once until it is read again."""
        self.failures[source] = self.failures.get(source, 0) + 1
        messages = self._failing.setdefault(group, set())
        if message not in messages:
            messages.add(message)
            log.warning("%s: reading %s failed: %s", self._gpu, group, message)

    def answered(self, group: str) -> None:
        """Note that `group` was read."""
        if self._failing and self._failing.pop(group, None) is not None:
            log.info("%s: reading %s works again", self._gpu, group)


class Probe(Generic[T]):
    """A reading of one GPU: the first call of the chain that the driver has.

    A call that the driver or product will never answer is not asked again; a refused one neither.
    """

    __slots__ = ("_calls", "_failing", "_group", "_journal", "_refused", "_source", "_unsupported")

    def __init__(
        self, journal: Journal, source: str, group: str, calls: Iterable[Callable[[], T]]
    ) -> None:
        self._journal = journal
        self._source = source
        self._group = group
        self._calls = list(calls)
        self._refused = False
        self._unsupported = False
        self._failing = False

    @property
    def possible(self) -> bool:
        """False once no call of the chain can answer."""
        return bool(self._calls)

    def __call__(self) -> T | None:
        """Return the value, or None where it is not known now.

        Raises:
            DeviceGone: the GPU is lost, removed or needs a reset.
            LibraryUnavailable: the library must be initialised again.
        """
        while self._calls:
            try:
                value = self._calls[0]()
            except Exception as error:  # one bad reading must not cost the others
                if self._give_up_on(error):
                    continue
                return None
            if self._failing:
                self._failing = False
                self._journal.answered(self._group)
            return value
        return None

    def _give_up_on(self, error: Exception) -> bool:
        """Decide about `error`; True if the next call of the chain should be tried."""
        code = code_of(error)
        raise_if_gone(code)
        outcome = outcome_of(code)
        if outcome is Outcome.NOT_NOW:
            return False
        missing = isinstance(error, AttributeError)  # the installed binding is older than the call
        if missing or outcome in (Outcome.NEVER, Outcome.NO_PERMISSION):
            self._calls.pop(0)
            self._refused |= outcome is Outcome.NO_PERMISSION
            self._unsupported |= outcome is Outcome.NEVER and code not in OLD_DRIVER_CODES
            if not self._calls:
                self._note_end()
            return True
        self._failing = True
        self._journal.failed(self._source, self._group, str(error) or type(error).__name__)
        return False

    def _note_end(self) -> None:
        """Say why no call of the chain is left."""
        if self._refused:
            self._journal.refused(self._source, self._group)
        else:
            state = "unsupported" if self._unsupported else "old_driver"
            self._journal.absent(self._group, state)
