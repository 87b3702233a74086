# SPDX-License-Identifier: Apache-2.0
"""What training jobs are called where room is short: without what names a single run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

RUN = re.compile(r"@(?:[0-9]{8}T[0-9]{6}-[0-9]+|slurm-[0-9]+|rdzv-[0-9a-f]{8})\Z")
"""What the client puts behind a default name: start and process id, Slurm job, or rendezvous."""


def display_names(jobs: Iterable[str]) -> dict[str, str]:
    """Return the short name of each job where no other job on this node has it, else its own."""
    short = {job: RUN.sub("", job) or job for job in jobs}
    counts = Counter(short.values())
    return {job: name if counts[name] == 1 else job for job, name in short.items()}
