# SPDX-License-Identifier: Apache-2.0
"""One GPU in the sampling process: open a session, read it once a second, back off on errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from exporter.sources.cupti.choice import Choices, Metric
from exporter.sources.cupti.host import Host
from exporter.sources.cupti.library import FAULTS, OVERFLOW, CuptiError, Fault, Remedy
from exporter.sources.cupti.session import (
    LEAST_COVERED_RATIO,
    SampledWindow,
    SamplingSession,
    availability_of,
    check_support,
    chip_of,
)
from exporter.sources.cupti.signals import MetricForm

BACK_OFF_SECONDS = (5.0, 15.0, 30.0, 60.0)
"""Between attempts, where only time helps."""
MOST_ATTEMPTS = 5
"""Of a GPU that fails for no reason that CUPTI gives."""
HIGHEST_RATIO, HIGHEST_BYTES = 2.0, 1e18
"""In a second; a mean over cycles lies a little above 1 at times."""
MOST_POOR_SECONDS = 3
"""Seconds in a row that are not covered, before it is said."""

SILENT = Fault(
    "unreachable", "the samples that CUPTI gives cover too little of the time", Remedy.WAIT
)
IMPLAUSIBLE = Fault("implausible", "CUPTI gives more than a unit can do")


class ProcessSpent(Exception):
    """Only a new process can sample this GPU again."""


class SampledGpu:
    """The session of one GPU, with its retries."""

    def __init__(self, uuid: str, index: int, choices: Choices, clock: Callable[[], float]) -> None:
        """Sample the GPU that CUDA numbers `index`, at the monotonic times of ``clock()``."""
        self._uuid = uuid
        self._index = index
        self._choices = choices
        self._clock = clock
        self._session: SamplingSession | None = None
        self._metrics: tuple[Metric, ...] = ()
        self._read_at = 0.0
        self._not_before = float("-inf")
        self._attempts = 0
        """That failed in a row."""
        self._poor = 0
        """Seconds in a row that were not covered."""
        self._has_worked = False
        self._given_up = False
        """Whether nothing but another driver, or a restart, can help."""

    def step(self) -> Mapping[str, Any] | None:
        """Read the session, or open one if it is due; return the message for the exporter, if any.

        Raises:
            ProcessSpent: the process has to be replaced.
        """
        try:
            if self._session is not None:
                return self._read(self._session)
            if not self._given_up and self._clock() >= self._not_before:
                self._open()
        except CuptiError as error:
            return self._failed(error.fault, str(error))
        return None

    def release(self) -> None:
        """Close the session; the next `step` may open one at once."""
        self._not_before = float("-inf")
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(CuptiError):
                session.close()

    def _open(self) -> None:
        library = self._choices.library
        check_support(library, self._index)
        chip = chip_of(library, self._index)
        availability = availability_of(library, self._index)
        self._metrics = self._choices.of(chip, availability).metrics
        names = [metric.name for metric in self._metrics]
        self._session = SamplingSession(Host(library, chip, availability), self._index, names)
        self._session.start()
        self._read_at, self._poor = self._clock(), 0

    def _read(self, session: SamplingSession) -> Mapping[str, Any] | None:
        window, overflowed = session.read()
        now = self._clock()
        elapsed, self._read_at = now - self._read_at, now
        if overflowed:
            session.stop()
            session.start()
        if overflowed or window.covered_seconds < LEAST_COVERED_RATIO * elapsed:
            self._poor += 1
            if self._poor < MOST_POOR_SECONDS:
                return None
            # As after a fault of the GPU (Xid 31): only a new session samples again.
            return self._failed(FAULTS[OVERFLOW] if overflowed else SILENT)
        self._poor = self._attempts = 0
        self._has_worked = True
        ratios, moved = activity_of(self._metrics, window)
        highest = max(ratios.values(), default=0.0), max(moved.values(), default=0.0)
        if highest[0] > HIGHEST_RATIO or highest[1] > HIGHEST_BYTES:
            return self._state(IMPLAUSIBLE)
        seconds = window.covered_seconds
        return {"gpu": self._uuid, "seconds": seconds, "ratios": ratios, "bytes": moved}

    def _failed(self, fault: Fault, message: str = "") -> Mapping[str, Any]:
        """Close the session, for a while or for good, and return the message for the exporter;
        raise ProcessSpent if it worked in this process, which stands in its way now."""
        self.release()
        self._attempts += 1
        lasts = self._attempts >= MOST_ATTEMPTS and fault.state == "unreachable"
        self._given_up = lasts or fault.remedy is Remedy.GIVE_UP
        spent = lasts or fault.remedy is Remedy.RESTART_PROCESS
        if spent and self._has_worked:
            raise ProcessSpent(message or fault.message)
        wait = BACK_OFF_SECONDS[min(self._attempts, len(BACK_OFF_SECONDS)) - 1]
        self._not_before = self._clock() + wait
        return self._state(fault, message)

    def _state(self, fault: Fault, message: str = "") -> Mapping[str, Any]:
        return {"gpu": self._uuid, "state": fault.state, "message": message or fault.message}


def activity_of(
    metrics: tuple[Metric, ...], window: SampledWindow
) -> tuple[dict[str, float], dict[str, float]]:
    """Return ratios and bytes by field of Activity, without those that are not known."""
    ratios: dict[str, float] = {}
    moved: dict[str, float] = {}
    for metric, found in zip(metrics, window.metrics, strict=True):
        if found is None:
            continue
        mean, total = found
        if metric.form is MetricForm.BYTES:
            moved[metric.field] = max(total, 0.0)
        else:
            ratios[metric.field] = max(mean / 100, 0.0)
    return ratios, moved
