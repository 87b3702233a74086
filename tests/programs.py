# SPDX-License-Identifier: Apache-2.0
"""Programs that tests run to their end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conftest import require_tool

Ended = subprocess.CompletedProcess[str]
HEAVY = {
    *("uvicorn", "starlette", "pydantic", "prometheus_client"),
    *("pynvml", "yaml", "asyncio"),
}
"""What takes long to load."""


def ended(*words: str | Path, timeout: float = 60, **options: Any) -> Ended:
    """Run a program, whatever its exit code will be."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([*map(str, words)], text=True, check=False, timeout=timeout, **options)


def exporter(*words: str, **options: Any) -> Ended:
    """Run a command of the exporter in a process of its own."""
    return ended(sys.executable, "-m", "exporter", *words, **options)


def loaded_by(*commands: Sequence[str]) -> set[str]:
    """Return the top-level modules that commands of the exporter have loaded when they end."""
    code = (
        "import sys; from exporter.cli.main import main;"
        f"[main(words) for words in {[*map(list, commands)]}];"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = set(said(sys.executable, "-c", code).splitlines()[-1].split())
    assert "exporter" in loaded
    return loaded


def said(*words: str | Path, **options: Any) -> str:
    """Run a program that has to succeed; return its output."""
    done = ended(*words, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def verified_by_systemd(*units: Path) -> None:
    """Let `systemd-analyze verify` read units of ours, of which it has to say nothing."""
    done = ended(require_tool("systemd-analyze"), "verify", "--man=no", *units)
    ours = [line for line in done.stderr.splitlines() if "roofline" in line or "slurm-" in line]
    assert (done.returncode, ours) == (0, [])


def write_script(path: Path, text: str) -> None:
    """Write a program for /bin/sh."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
