# SPDX-License-Identifier: Apache-2.0
"""Problems of the driver as a whole, and of supervising its GPUs; each change is logged."""

from __future__ import annotations

import logging

from exporter.errors import one_line

log = logging.getLogger(__name__)


class Problems:
    """The driver's problem and the supervisor's, each in one line; None while all is well."""

    def __init__(self, driver: str | None = None) -> None:
        """Start with a problem of the driver, which is not logged."""
        self.driver = driver
        self._logged: str | None = None
        """The driver's problem that the log had last; None once the driver answered again."""
        self._fault: str | None = None

    @property
    def first(self) -> str | None:
        """Why no GPU can be read, in one line."""
        return self.driver or self._fault

    def note_driver(self, problem: str | None) -> None:
        """Note the driver's problem, or that it answers (None)."""
        self.driver = problem
        if problem == self._logged:
            return
        if problem is None:
            log.info("the driver answers")
        else:
            log.warning("%s; retrying", problem)
        self._logged = problem

    def note_supervisor(self, error: Exception | None) -> None:
        """Note an unexpected error of the supervisor, or that it works (None)."""
        fault = None if error is None else f"supervising the GPUs failed: {in_words(error)}"
        if fault == self._fault:
            return
        if fault is None:
            log.info("the GPUs are supervised again")
        else:
            log.error("%s; retrying", fault, exc_info=error)
        self._fault = fault


def in_words(error: Exception) -> str:
    """Return the message of `error` in one line, or its type if it has none."""
    return one_line(str(error)) or type(error).__name__
