# SPDX-License-Identifier: Apache-2.0
"""A reading as a chain of driver calls, newest first, with the outcome of each error code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

import pynvml

from exporter.errors import DeviceGone, LibraryUnavailable
from exporter.sources.nvml import NVML
from exporter.sources.reading_state import Journal

T = TypeVar("T")


class Outcome(Enum):
    """What an error code means for a reading (nvml.h, nvmlReturn_t)."""

    NEVER = "never"
    NOT_NOW = "not now"
    NO_PERMISSION = "no permission"
    DEVICE_GONE = "device gone"
    LIBRARY_STATE = "library state"
    FAILURE = "failure"


GONE = (Outcome.DEVICE_GONE, Outcome.LIBRARY_STATE)
"""Of a MIG instance these say nothing of the board: its own calls do."""

OLD_DRIVER_CODES = frozenset(
    (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
)
LACKING_CODES = OLD_DRIVER_CODES | {pynvml.NVML_ERROR_DEPRECATED}
"""What a driver answers for what it has not yet, or no longer."""
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


OUTCOMES: Mapping[int, Outcome] = {
    **dict.fromkeys(LACKING_CODES, Outcome.NEVER),
    pynvml.NVML_ERROR_NOT_SUPPORTED: Outcome.NEVER,
    # A field, link or sensor that this GPU model does not have; or a stale handle.
    pynvml.NVML_ERROR_INVALID_ARGUMENT: Outcome.NEVER,
    pynvml.NVML_ERROR_NOT_FOUND: Outcome.NOT_NOW,
    pynvml.NVML_ERROR_TIMEOUT: Outcome.NOT_NOW,
    pynvml.NVML_ERROR_IN_USE: Outcome.NOT_NOW,
    pynvml.NVML_ERROR_NO_DATA: Outcome.NOT_NOW,
    pynvml.NVML_ERROR_NOT_READY: Outcome.NOT_NOW,
    pynvml.NVML_ERROR_INVALID_STATE: Outcome.NOT_NOW,
    pynvml.NVML_ERROR_NO_PERMISSION: Outcome.NO_PERMISSION,
    **dict.fromkeys(GONE_REASONS, Outcome.DEVICE_GONE),
    **dict.fromkeys(LIBRARY_REASONS, Outcome.LIBRARY_STATE),
}


def code_of(error: BaseException) -> int | None:
    """Return the driver's code of `error`; None if it is no error of the driver. Keep the number
    only: ``NVMLError`` objects cannot be hashed, or compared with None."""
    return int(error.value) if isinstance(error, pynvml.NVMLError) else None


def outcome_of(code: int | None) -> Outcome:
    """Return the outcome of `code`; an unknown code is a failure."""
    return Outcome.FAILURE if code is None else OUTCOMES.get(code, Outcome.FAILURE)


REFUSALS = frozenset(
    code for code, outcome in OUTCOMES.items() if outcome in (Outcome.NEVER, Outcome.NO_PERMISSION)
)
"""The codes which mean that the driver or GPU lacks a call, or denies it."""


def raise_if_gone(code: int | None) -> None:
    """Raise for a code that concerns more than the reading that got it.

    Raises:
        DeviceGone: the GPU is lost, removed or needs a reset.
        LibraryUnavailable: the library must be initialised again.
    """
    if code is None:
        return
    if code in GONE_REASONS:
        raise DeviceGone(GONE_REASONS[code])
    if code in LIBRARY_REASONS:
        raise LibraryUnavailable(LIBRARY_REASONS[code])


NEVER_WORKED_RETRY_SECONDS = 60.0
"""After how long a reading that was refused and never answered is tried again."""
WORKED_RETRY_SECONDS = 5.0
"""The same if it has answered before, or if the refusal may be temporary: a recovery shows within
ten seconds."""


def retry_seconds(code: int | None, *, worked: bool) -> float:
    """Return after how many seconds to repeat a call that answered `code`."""
    if code in LACKING_CODES:
        return math.inf
    if worked or code == pynvml.NVML_ERROR_INVALID_ARGUMENT:  # a stale handle answers it, too
        return WORKED_RETRY_SECONDS
    return NEVER_WORKED_RETRY_SECONDS


def note_refusal(
    journal: Journal,
    source: str,
    group: str,
    codes: Iterable[int],
    member: object = None,
    *,
    worked: bool,
) -> None:
    """Note that `member` of `group` is refused, with the best reason that `codes` give."""
    outcomes = {outcome_of(code) for code in codes}
    if Outcome.NO_PERMISSION in outcomes:
        journal.refused(source, group, member, worked=worked)
    else:
        state = "old_driver" if OLD_DRIVER_CODES.issuperset(codes) else "unsupported"
        journal.absent(group, state, member, worked=worked)


class Probe(Generic[T]):
    """A reading of one GPU: the first call of the chain that answers.

    A call that the driver or GPU model lacks, or that is denied, is tried again only after
    `retry_seconds`. A value that `check` finds impossible is left out, as is a call's None, and the
    state of the group is `implausible` until there is a possible value.
    """

    # A GPU has 80 of them.
    __slots__ = (
        "_at",
        "_calls",
        "_check",
        "_group",
        "_journal",
        "_refusals",
        "_retry_at",
        "_worked",
    )

    def __init__(
        self,
        journal: Journal,
        group: str,
        calls: Iterable[Callable[[], T]],
        check: Callable[[T], T | None] | None = None,
    ) -> None:
        self._journal = journal
        self._group = group
        self._calls = tuple(calls)
        self._check = check
        self._at = 0
        """The position of the newest call that may answer."""
        self._worked: tuple[int, ...] = ()
        """The positions of the calls that have given a possible value."""
        self._retry_at = math.inf
        self._refusals: tuple[int, ...] = ()
        """The codes of the calls that were given up."""

    @property
    def possible(self) -> bool:
        """False if no call of the chain can answer and none has ever given a possible value."""
        return self._at < len(self._calls) or bool(self._worked)

    def __call__(self) -> T | None:
        """Return the value, or None if it is not known now.

        Raises:
            DeviceGone: the GPU is lost, removed or needs a reset.
            LibraryUnavailable: the library must be initialised again.
        """
        self._journal.progress()
        if self._journal.now >= self._retry_at:
            self._at, self._retry_at = 0, math.inf
            self._refusals = ()
        while self._at < len(self._calls):
            try:
                value = self._calls[self._at]()
            except Exception as error:  # a fault of one reading must not affect the others
                if self._give_up_on(error):
                    continue
                return None
            found = value if self._check is None else self._check(value)
            possible, worked = found is not None, bool(self._worked)
            self._journal.judged(self._group, self, possible=possible, worked=worked)
            if possible and self._at not in self._worked:
                self._worked += (self._at,)
            return found
        return None

    def _give_up_on(self, error: Exception) -> bool:
        """Record `error`; return whether to try the next call of the chain."""
        code = code_of(error)
        if isinstance(error, AttributeError):  # the installed binding is older than the call
            code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        raise_if_gone(code)
        message = str(error) or type(error).__name__
        self._journal.last_refusal = message
        if code is None or code not in REFUSALS:
            if outcome_of(code) is not Outcome.NOT_NOW:
                self._journal.failed(NVML, self._group, message, self)
            return False
        wait = retry_seconds(code, worked=self._at in self._worked)
        self._retry_at = min(self._retry_at, self._journal.now + wait)
        self._refusals += (code,)
        self._at += 1
        if self._at == len(self._calls):
            worked = bool(self._worked)
            note_refusal(self._journal, NVML, self._group, self._refusals, self, worked=worked)
        return True


def probe_of(
    journal: Journal,
    handle: Any,
    group: str,
    *calls: str | Callable[[], Any],
    check: Callable[[Any], Any] | None = None,
) -> Probe[Any]:
    """Return a probe of `calls`; a name is that of a function of pynvml, called with `handle`."""
    chain = [partial(_ask, call, handle) if isinstance(call, str) else call for call in calls]
    return Probe(journal, group, chain, check)


def _ask(function: str, handle: Any) -> Any:
    """Call a function of pynvml; it is looked up now, for an older binding lacks some."""
    return getattr(pynvml, function)(handle)
