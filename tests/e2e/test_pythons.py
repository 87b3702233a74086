# SPDX-License-Identifier: Apache-2.0
"""The other Pythons of this machine, with the packages of this one: `once` reads every GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeDriver
from tests.e2e.daemons import Page
from tests.e2e.processes import ROOT, Process

NEWER = range(11, 16)
"""Of 3.10 the packages differ: exceptiongroup."""
PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")


def others() -> list[str]:
    """The Pythons but this one that start, by `python3.N` on the PATH or in pyenv."""
    found = []
    for minor in NEWER:
        name = f"python3.{minor}"
        known = [shutil.which(name), *PYENV.glob(f"versions/3.{minor}.*/bin/{name}")]
        works = (
            str(path)
            for path in known
            if path and not subprocess.run([path, "-c", ""], capture_output=True).returncode
        )
        if minor != sys.version_info.minor and (first := next(works, None)):
            found.append(first)
    return found


def test_once_reads_every_gpu(
    make_driver: MakeDriver, folders: Iterator[Path], processes: list[Process]
) -> None:
    if not (pythons := others()):
        pytest.skip("there is no other Python 3.11 or newer")
    gpm = {"graphics": 60, "sm": 50, "tensor": 30, "dram": 20}
    devices = [{"product": "h100-sxm", "utilization": 60, "gpm": gpm}, {"product": "t4"}]
    driver = make_driver({"devices": devices})
    packages = f"{ROOT}{os.pathsep}{sysconfig.get_path('purelib')}"
    for python in pythons:
        environ = {**driver.environment(), "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"}
        run = Process([python, "-m", "exporter", "once"], next(folders), environ)
        processes.append(run)
        assert run.wait() == 0, f"{python}: {run.lines()}"
        assert run.lines() == [], python
        page = Page(run.stdout.decode())
        assert page.get("gpu_sm_active_ratio", gpu="0") is not None, python
        assert page.get("gpu_utilization_ratio", gpu="1") is not None, python
