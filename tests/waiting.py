# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another thread or process will do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(answer: Callable[[], T], timeout_seconds: float = 10.0, what: str = "") -> T:
    """Return the first true answer; fail after the timeout."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        value = answer()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_seconds} s in vain {what}")
        time.sleep(0.01)
