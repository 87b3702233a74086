# SPDX-License-Identifier: Apache-2.0
"""What a run and its daemon agree on: the names of the step, of its sockets, and signals."""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping

Environment = Mapping[str, str]

FORWARDED = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
)
START_SECONDS = 20.0
"""How long the job waits for its daemon."""
REPORT_SECONDS = 15
"""How long its exit code waits for the report: half of what Slurm's KillWait gives by default."""
REPORT_SO_FAR = b"report"
"""Asked for on SIGTERM: what takes too long to end is killed with all that is around it."""
CONTROL, TRAINING, DONE = "control.sock", "training.sock", b"done"
"""Sockets in the step's folder; and how the daemon begins what it says to a run that ends."""


def step_of(environ: Environment) -> str | None:
    """Return JOB.STEP, as Slurm names it; None outside of Slurm."""
    job = environ.get("SLURM_JOB_ID")
    return job and f"{job}.{environ.get('SLURM_STEP_ID') or 'batch'}"


def node_of(environ: Environment) -> str:
    """Return the node's name, as Slurm has it, else the host's."""
    return environ.get("SLURMD_NODENAME") or socket.gethostname()
