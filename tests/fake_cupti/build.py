# SPDX-License-Identifier: Apache-2.0
"""Compile the fake libraries, once per state of their sources, into folders laid out as wheels."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "src"
COMPILE = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-shared")
_CUPTI = ("target.c", "host.c", "scenario.c")
LIBRARIES = {
    "libcuda.so.1": ("cuda.c", "scenario.c"),
    # NVIDIA's CUPTI takes what it finds under the other name for a whole driver.
    "libcuda_of_no_name.so": ("cuda.c", "scenario.c"),
    "libcupti.so.12": ("-DMAJOR=12", *_CUPTI),
    "libcupti.so.13": ("-DMAJOR=13", *_CUPTI),
    "libnvperf_host.so": ("empty.c",),
    "libnvperf_target.so": ("empty.c",),
}
"""Sources and flags by name."""


def build() -> Path:
    """Return the folder that has all libraries, compiled if need be."""
    cache = Path(__file__).parent.parent / ".cache" / "fake_cupti"
    digest = hashlib.sha256(repr((COMPILE, LIBRARIES)).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    folder = cache / digest.hexdigest()[:16]
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=cache, prefix="building-"))
    try:
        for library, sources in LIBRARIES.items():
            paths = [name if name.startswith("-") else str(SOURCES / name) for name in sources]
            target = str(scratch / library)
            command = ["cc", *COMPILE, *paths, f"-Wl,-soname,{library}", "-lpthread", "-o", target]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode or done.stderr:
                raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        if not folder.exists():
            os.replace(scratch, folder)
    except OSError:
        if not folder.exists():  # else another process was faster
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder
