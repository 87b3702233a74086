# SPDX-License-Identifier: Apache-2.0
"""Daemons to attack; each test has its own, and ends it.

What the attacks cost is printed at the end of the run, under *measured*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.daemons import Daemon
from tests.e2e.processes import Process

StartDemo = Callable[..., Daemon]


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark the attacks that are measured as slow: hundreds of connections, for seconds each."""
    for item in items:
        if Path(__file__).parent in item.path.parents and "record_property" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def start_demo(folders: Iterator[Path], processes: list[Process]) -> StartDemo:
    """Starts a daemon with simulated GPUs and these flags."""

    def start(*flags: str) -> Daemon:
        daemon = Daemon(next(folders), {}, ("--demo", *flags))
        processes.append(daemon)
        daemon.wait_for_gpus(8)
        return daemon

    return start


@pytest.fixture
def daemon(start_demo: StartDemo) -> Daemon:
    """A daemon with 8 simulated GPUs, as it is by default."""
    return start_demo()
