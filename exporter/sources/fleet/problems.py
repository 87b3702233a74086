# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the driver as a whole, or with looking after its GPUs: told once a change."""

from __future__ import annotations

import logging

from exporter.errors import one_line

log = logging.getLogger("exporter.sources.fleet.fleet")


class Problems:
    """One line on the driver and one on whoever supervises it; None where nothing is wrong."""

    def __init__(self, driver: str | None = None) -> None:
        """Take what is wrong with the driver from the start, which is not logged."""
        self._driver = driver
        self._told: str | None = None
        """The driver's last problem in the log, until it was over."""
        self._fault: str | None = None

    @property
    def first(self) -> str | None:
        """Why no GPU can be looked after, in one line."""
        return self._driver or self._fault

    @property
    def driver(self) -> str | None:
        """What is wrong with the driver."""
        return self._driver

    def of_driver(self, problem: str | None) -> None:
        """Note what is wrong with the driver, or that nothing is."""
        self._driver = problem
        if problem == self._told:
            return
        if problem is None:
            log.info("the driver answers")
        else:
            log.warning("%s; retrying", problem)
        self._told = problem

    def suspend(self) -> None:
        """Say nothing of the driver until it is known how it is; the log has its last problem."""
        self._driver = None

    def of_supervisor(self, error: Exception | None) -> None:
        """Note what went wrong where nothing should have, or that nothing did."""
        fault = None if error is None else f"looking after the GPUs failed: {in_words(error)}"
        if fault == self._fault:
            return
        if fault is None:
            log.info("the GPUs are looked after again")
        else:
            log.error("%s; retrying", fault, exc_info=error)
        self._fault = fault


def in_words(error: Exception) -> str:
    """Return what `error` says, in one line, or at least what it is."""
    return one_line(str(error)) or type(error).__name__
