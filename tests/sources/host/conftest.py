# SPDX-License-Identifier: Apache-2.0
"""Jobs that end with the test."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.sources.host.jobs import StartJob, started


@pytest.fixture
def start_job() -> Iterator[StartJob]:
    """Return what starts a program as the leader of its group, and returns its pid."""
    jobs: list[subprocess.Popen[bytes]] = []

    def start(text: str) -> int:
        jobs.append(started(text))
        return jobs[-1].pid

    yield start
    for job in jobs:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
