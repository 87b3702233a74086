# SPDX-License-Identifier: Apache-2.0
"""Adds to the file of ``run --summary`` what only a daemon can know of the job."""

from __future__ import annotations

import logging
from pathlib import Path

from exporter.cli.compare.job_summary import with_daemon
from exporter.cli.job.seen import Seen
from exporter.cli.job.supervise import Environment
from roofline_job.summary_file import VARIABLE, put

log = logging.getLogger(__name__)


def known_of(seen: Seen) -> dict[str, object]:
    """Return saturation, energy and GPU-seconds of the job's GPUs, without what is not known."""
    shares = seen.shares.values()
    if not shares:
        return {}
    known: dict[str, object] = {"gpu_seconds": len(shares) * (seen.ended - seen.began)}
    seconds, lower, upper = (sum(each) for each in zip(*(s.saturated for s in shares), strict=True))
    if seconds:
        bounds = [min(each / seconds, 1.0) for each in (lower, upper)]
        measured = lower == upper
        known |= {"saturation_ratio": bounds[0]} if measured else {"saturation_bounds": bounds}
    energy = [each.energy_joules for each in shares]
    if None not in energy:
        known["energy_joules"] = sum(filter(None, energy))
    return known


def amend(environ: Environment, seen: Seen) -> None:
    """Add to the file that rank 0 has written, if that ran on this node."""
    path = environ.get(VARIABLE)
    if path and any(rank == 0 for _, rank, _ in seen.ranks):
        try:
            put(path, with_daemon(Path(path).read_bytes(), known_of(seen)).decode())
        except (OSError, ValueError) as error:
            log.warning("%s: what this daemon knows is not added: %s", path, error)
