# SPDX-License-Identifier: Apache-2.0
"""Adds to the file of ``run --summary`` what only a daemon can know of the job."""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from exporter.cli.compare.job_summary import with_daemon
from exporter.cli.job.seen import Seen

log = logging.getLogger(__name__)


def known_of(seen: Seen) -> dict[str, object]:
    """Return saturation, energy and GPU-seconds of the job's GPUs, without what is not known."""
    shares = seen.shares()
    if not shares:
        return {}
    known: dict[str, object] = {"gpu_seconds": len(shares) * (seen.ended - seen.began)}
    seconds, lower, upper = (sum(each) for each in zip(*(s.saturated for s in shares), strict=True))
    if seconds and lower == upper:
        known["saturation_ratio"] = min(lower / seconds, 1.0)
    elif seconds:
        known["saturation_bounds"] = [min(lower / seconds, 1.0), min(upper / seconds, 1.0)]
    joules = [each.energy_joules for each in shares]
    energy = [each for each in joules if each is not None]
    if len(energy) == len(joules):
        known["energy_joules"] = sum(energy)
    return known


def amend(path: str, seen: Seen) -> None:
    """Add to the file that rank 0 has written, if that ran on this node."""
    if not any(rank == 0 for _, rank, _ in seen.ranks):
        return
    temporary = f"{path}.{os.urandom(4).hex()}"
    try:
        with open(path, "rb") as file:
            content = with_daemon(file.read(), known_of(seen))
        with open(temporary, "xb") as file:
            file.write(content)
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        with suppress(OSError):
            os.unlink(temporary)
        log.warning("%s: what this daemon knows is not added: %s", path, error)
