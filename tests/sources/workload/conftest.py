# SPDX-License-Identifier: Apache-2.0
"""The log of the sources of workloads, as their tests read it."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def _only_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """Hold back what is not asked for: a test before may have set the level of the root."""
    caplog.set_level(logging.WARNING)
