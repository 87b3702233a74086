# SPDX-License-Identifier: Apache-2.0
"""How a command ends inside this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from exporter.cli.main import main

Outcome = Callable[..., tuple[int, str, str]]
"""Takes the words of a command line; returns exit code, output and standard error."""


def outcome(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Return exit code, output and standard error of a command."""
    code = main(argv)
    captured = capsys.readouterr()
    return code, captured.out, captured.err
