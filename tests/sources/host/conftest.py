# SPDX-License-Identifier: Apache-2.0
"""Jobs that end with the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.sources.host.jobs import StartJob


@pytest.fixture
def start_job() -> Iterator[StartJob]:
    """Return what starts a program as the leader of its group, and returns its pid."""
    started: list[subprocess.Popen[bytes]] = []

    def start(text: str) -> int:
        words = [sys.executable, "-c", text]
        job = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
        started.append(job)
        assert job.stdout is not None
        job.stdout.readline()
        return job.pid

    yield start
    for job in started:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
