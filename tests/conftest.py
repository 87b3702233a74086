# SPDX-License-Identifier: Apache-2.0
"""What tests of several areas share."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest

MEASURED = "measured"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests measured: ``record_property("measured", "stop: 0.3 s")``."""
    lines = [
        str(value)
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == MEASURED
    ]
    if lines:
        terminalreporter.section("measured")
        for line in sorted(lines):
            terminalreporter.line(line)


def unmet(reason: str) -> NoReturn:
    """Skip the test, or fail it where everything has to be there (``REQUIRE_ALL=1``)."""
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(f"{reason}, and REQUIRE_ALL=1 says that it has to be")
    pytest.skip(reason)


def require_tool(name: str, *, beside_python: bool = False) -> str:
    """Return the path of a program that a test runs.

    Without it the test is skipped, or fails where the environment says that everything is
    installed (``REQUIRE_ALL=1``). With `beside_python` it is one of this environment's packages.
    """
    own = str(Path(sys.executable).parent)
    path = shutil.which(name, path=own if beside_python else None)
    if path is not None:
        return path
    unmet(f"{name} is not on the PATH")
