# SPDX-License-Identifier: Apache-2.0
"""``run --with-daemon``: a job beside a daemon of its own, and the report at its end.

Here is what run and daemon share: the names of the Slurm step, and messages to the user.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from contextlib import suppress

Environment = Mapping[str, str]

READY = b"ready"
"""What the daemon says when it listens, and again when it has reported."""


def step_of(environ: Environment) -> str | None:
    """Return JOB.STEP, as Slurm names it; None outside of Slurm."""
    job = environ.get("SLURM_JOB_ID")
    return job and f"{job}.{environ.get('SLURM_STEP_ID') or 'batch'}"


def node_of(environ: Environment) -> str:
    """Return the node's name, as Slurm has it, else the host's."""
    return environ.get("SLURMD_NODENAME") or socket.gethostname()


def say(text: str) -> None:
    """Write to standard error, if that is possible."""
    with suppress(AttributeError, OSError, ValueError):  # closed, from the start or now
        sys.stderr.write(f"roofline-exporter: {text}\n")
        sys.stderr.flush()
