# SPDX-License-Identifier: Apache-2.0
"""What all tests of commands need: no settings of this machine, and its logging as before."""

from __future__ import annotations

import pytest

from exporter.cli import config


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, restored_logging: None) -> None:
    for variable in config.FLAGS:
        monkeypatch.delenv(variable.variable, raising=False)
