# SPDX-License-Identifier: Apache-2.0
"""What all tests of commands need: no settings of this machine, and its logging as before."""

from __future__ import annotations

from functools import partial

import pytest

from exporter.cli import config
from tests.cli.outcomes import Outcome
from tests.cli.outcomes import outcome as outcome_of


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, restored_logging: None) -> None:
    for variable in config.FLAGS:
        monkeypatch.delenv(variable.variable, raising=False)


@pytest.fixture
def outcome(capsys: pytest.CaptureFixture[str]) -> Outcome:
    """Runs a command."""
    return partial(outcome_of, capsys)
