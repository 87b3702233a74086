# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another thread or process will do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 30.0
POLL_SECONDS = 0.02


def wait_until(
    condition: Callable[[], T | bool | None], seconds: float = PATIENCE_SECONDS, what: str = ""
) -> T:
    """Return the first true value of `condition`; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result  # type: ignore[return-value]
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        time.sleep(POLL_SECONDS)
