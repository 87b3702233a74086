# SPDX-License-Identifier: Apache-2.0
"""Builds what a release consists of, and tries each part where nothing else is installed.

``python -m tests.deploy.release python3.10 python3.14``, or ``make release-check``: the wheel with
each Python, the sdist with the first, and the image, on another base with PYTHON_IMAGE=....
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from exporter import __version__

ROOT = Path(__file__).parents[2]
PYTHONS = ("python3.10", "python3.14")
"""The oldest that is supported, and the newest."""
IMAGE = "roofline-exporter:release-check"
SERIES = re.compile(r"^gpu_utilization_ratio\{", re.MULTILINE)


def _run(*command: str | Path, cwd: str | Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def _try(command: Sequence[str | Path], what: str, folder: Path) -> None:
    """Have it say its version and print a page of the demo, away from the checkout."""
    version = _run(*command, "--version", cwd=folder)
    if f" {__version__} " not in version:
        raise SystemExit(f"{what}: expected version {__version__}, got {version.strip()}")
    gpus = len(SERIES.findall(_run(*command, "once", "--demo", cwd=folder)))
    if not gpus:
        raise SystemExit(f"{what}: once --demo has no GPU")
    print(f"{what}: {version.strip()}; {gpus} GPUs of the demo")


def main(pythons: Sequence[str]) -> None:
    """Build and try everything; end at the first problem."""
    pythons = pythons or PYTHONS
    missing = [name for name in (*pythons, "docker") if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"not on the PATH: {', '.join(missing)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run(sys.executable, "-m", "hatchling", "build", "-d", folder)
        (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
        for number, python in enumerate(pythons):
            for package in (wheel, sdist) if number == 0 else (wheel,):
                venv = folder / f"{python.replace('/', '-')}-{package.suffix}"
                _run(python, "-m", "venv", venv)
                _run(venv / "bin" / "python", "-m", "pip", "install", "--quiet", package)
                _try([venv / "bin" / "roofline-exporter"], f"{package.name}, {python}", folder)
        base = os.environ.get("PYTHON_IMAGE")
        words = ["--build-arg", f"PYTHON_IMAGE={base}"] if base else []
        _run("docker", "build", "--tag", IMAGE, *words, ".")
        _try(["docker", "run", "--rm", IMAGE], "image", folder)


if __name__ == "__main__":
    main(sys.argv[1:])
