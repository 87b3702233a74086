# SPDX-License-Identifier: Apache-2.0
"""The environment variables that switch the client, or a part of it, on and off.

They are read when the client is first used, so a script may set them before that.
"""

from __future__ import annotations

import os
import sys

ENABLED = os.environ.get("ROOFLINE_JOB_INSTRUMENT") != "0"
"""0: the client does nothing at all, and `watch` returns what it is given."""

CUDA_EVENTS = os.environ.get("ROOFLINE_JOB_CUDA_EVENTS") != "0"
"""0: host time alone (W); no call to CUDA is ever made."""

COUNT_FLOPS = os.environ.get("ROOFLINE_JOB_COUNT_FLOPS") == "1"
"""1: count the FLOPs of one step, and from then on those of all."""

DEBUG = os.environ.get("ROOFLINE_JOB_DEBUG") == "1"
"""1: say on standard error what is hooked."""


def say(line: str) -> None:
    """Write a line to the job's standard error, if it has one that can be written to."""
    try:
        sys.stderr.write(f"roofline_job: {line}\n")
        sys.stderr.flush()
    except Exception:  # closed, missing, or something of the job's that raises
        return


def debug(line: str) -> None:
    """Say something only to those who asked for it."""
    if DEBUG:
        say(line)
