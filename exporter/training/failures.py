# SPDX-License-Identifier: Apache-2.0
"""What went wrong inside the client: counted and logged once, never raised into the job."""

from __future__ import annotations

import logging


class Failures:
    """The failures of this process."""

    __slots__ = ("count", "first")

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def reset(self) -> None:
        """Begin anew: a forked child has had no failures of its own."""
        self.count = 0
        self.first = ""

    def add(self, error: BaseException) -> None:
        """Count a failure; the first one is kept and logged."""
        self.count += 1
        if self.count > 1:
            return
        try:
            self.first = f"{type(error).__name__}: {error}"
        except Exception:  # an error whose text cannot be made
            self.first = type(error).__name__
        logging.getLogger("roofline.job").debug("not measured: %s", self.first)


FAILURES = Failures()
failed = FAILURES.add
