# SPDX-License-Identifier: Apache-2.0
"""A client that has done nothing yet, and a socket that it reports to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roofline_job.runs import PROCESS
from tests.training.listener import Listener


@pytest.fixture
def client() -> Iterator[None]:
    """Begin with a client that has done nothing, and leave nothing to report at exit."""
    PROCESS.forget()
    yield
    PROCESS.forget()


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: None) -> Iterator[Listener]:
    """Listen in the daemon's place."""
    found = Listener(tmp_path / "training.sock")
    monkeypatch.setenv("ROOFLINE_TRAINING_SOCKET", str(found.path))
    yield found
    found.close()
