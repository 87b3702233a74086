# SPDX-License-Identifier: Apache-2.0
"""Pipes that nobody reads."""

from __future__ import annotations

import contextlib
import os


def fill(end: int) -> int:
    """Write to a pipe until nothing fits into it; return how many bytes those were."""
    os.set_blocking(end, False)
    written = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            written += os.write(end, b"x" * 4096)
    os.set_blocking(end, True)
    return written
